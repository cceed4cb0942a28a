"""`pdejepa forecast`: forecast one trajectory, say how far to trust it, and draw it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdejepa.app.commands.options import NewFrames, OwnState, assignments
from pdejepa.app.commands.output_paths import check_file, check_folder
from pdejepa.core.errors import NumericalError, UsageError

if TYPE_CHECKING:
    from pdejepa.evaluate.cases import Truth
    from pdejepa.forecast.interface import Forecast, Outcome
    from pdejepa.systems import System


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(forecast)


def forecast(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Run folder, model folder, saved solver, or a shipped model's name.")
    ],
    source: Annotated[
        str, typer.Option("--from", metavar="[DIR:]SPLIT:INDEX", help="Whose first frame to start from.")
    ] = "test:0",
    u0: OwnState = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a parameter; may be repeated.")
    ] = None,
    frames: NewFrames = None,
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", metavar="FILE", help="Picture (png, pdf, svg...) or arrays (npz); may be repeated."),
    ] = None,
    animate: Annotated[Path | None, typer.Option("--animate", metavar="FILE", help="Animation: gif or webp.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Solve the equation too, and show the error.")] = False,
    residual: Annotated[
        bool, typer.Option("--residual", help="Say how well the forecast obeys its equation; needs no truth.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Forecast a trajectory and draw it; with --compare beside the solver's.

    A model knows initial states like those it was trained on; the command says where it does not see a state as it is.
    Without --out and --animate the picture is written to SYSTEM_SPLIT_INDEX_forecast.png in the present folder.
    A state of your own: pdejepa forecast combined --u0 u0.npy --set advection=1 --set diffusivity=0.1 --set
    dispersion=0 --out f.npz; u0.npy holds one state (256,), or several, of which the first is drawn.
    Ends with 5 if the forecast became unstable; what is sound of it is kept all the same.
    """
    from pdejepa import load
    from pdejepa.draw import animation

    values, files = assignments("--set", changes or []), list(out or [])
    for path in files:
        check_file("--out", path, "Pictures and arrays", _kinds())
    check_file("--animate", animate, "Animations", animation.FORMATS)
    if not files and animate is None:
        check_folder("--out", Path())
    solver = load(model, device)
    asked = _from_array(solver, u0, values, frames) if u0 else _from_case(solver, source, values, frames)
    result = asked.result
    typer.echo(_headline(asked.title, result))
    for sentence in (*result.support.sentences, *_band(result)):
        typer.echo(sentence)
    truth = asked.truth() if compare else None
    if truth is not None:
        typer.echo(_comparison(result, truth))
    if residual:
        typer.echo(_residual(solver.system, result))
    if not files and animate is None:
        files = [Path(f"{asked.name}_forecast.png")]
    _write(asked, truth, files, animate)
    if not result.is_stable:
        raise NumericalError(f"The forecast is {_first_unstable(result).sentence}. The frames before were kept.")


@dataclass(frozen=True)
class _Asked:
    """A forecast, what it is called in words and in file names, and how to find the truth of its first row."""

    result: Forecast
    title: str
    name: str
    truth: Callable[[], Truth]


def _from_case(solver: Any, source: str, values: dict[str, float], frames: int | None) -> _Asked:
    """The trajectory that --from names."""
    from pdejepa.evaluate.truth import case_of

    case = case_of(solver, source, values)
    support = {"support": case.sibling()} if "support" in solver.card.reads else {}
    result = solver.forecast(case.observed(solver.card.history), case.xi, n_frames=frames, **support)
    title, name = f"{case.system.title}, {case.split} {case.index}", f"{case.system.name}_{case.split}_{case.index}"
    return _Asked(result, title, name, lambda: case.truth(result.times))


def _from_array(solver: Any, path: Path, values: dict[str, float], frames: int | None) -> _Asked:
    """The state in a file, under the parameters that --set names."""
    from pdejepa.core.arrays import read_array
    from pdejepa.evaluate.cases import solved_from

    if "support" in solver.card.reads:
        raise UsageError(f"{solver.card.title} learns from another trajectory as well; --u0 gives it none. Use --from.")
    u0, problem = read_array(path), solver.problem
    result = solver.forecast(u0, values, n_frames=frames)
    observed = result.fields[:1, : result.n_observed]
    title, name = f"{problem.title or problem.name}, {path.name}", f"{problem.name}_{path.stem}"
    return _Asked(result, title, name, lambda: solved_from(solver.system, observed, result.xi, result.times))


def _headline(title: str, result: Forecast) -> str:
    n_rows, n_new = result.new.shape[:2]
    rows = f" of {n_rows} states" if n_rows > 1 else ""
    return (
        f"{title}: {n_new} new frames{rows} up to t = {float(result.times[-1]):.6g}, "
        f"forecast in {result.seconds:.2f} s."
    )


def _residual(system: System, result: Forecast) -> str:
    from pdejepa.core.text import percent
    from pdejepa.forecast.residual import of_forecast

    found = of_forecast(system, result)[0]
    return (
        f"Residual: from frame to frame the solver ends {percent(float(found.nanmean()))} away from the forecast, "
        f"at most {percent(float(found.nan_to_num(0.0).max()))}. A forecast that does not obey its equation is wrong."
    )


def _band(result: Forecast) -> list[str]:
    """What a calibrated model promises of the last frame, or that it promises nothing."""
    half, bands = result.half_width(), result.bands
    if half is None or bands is None:
        return []
    if not result.support.is_inside:
        return ["Band: outside of what the model was calibrated on it promises nothing; its edges are drawn dashed."]
    widths = zip(result.problem.fields, half[0, -1].tolist(), strict=True)
    told = ", ".join(f"{name} ± {width:.3g}" for name, width in widths)
    share = f"{100 * bands.usual_level:.0f} of 100 cases"
    return [f"Band: in {share} nine tenths of the points of the last frame are within {told}."]


def _first_unstable(result: Forecast) -> Outcome:
    return next(outcome for outcome in result.outcome if outcome.label != "ok")


def _comparison(result: Forecast, truth: Truth) -> str:
    """Errors in one sentence, with what repeating the first frame would give."""
    from pdejepa.core.text import percent
    from pdejepa.evaluate.cases import forecast_errors

    errors = forecast_errors(result, truth)
    text = (
        f"Relative L2 error {percent(errors.forecast)}, in the last frame {percent(errors.last)}; repeating the last "
        f"observed frame would give {percent(errors.repeat)}. "
        f"{'The truth is what is stored.' if truth.is_stored else f'The solver took {truth.seconds:.2f} s.'}"
    )
    return text if truth.outcome == "ok" else f"{text} The solve was {truth.outcome}."


def _kinds() -> list[str]:
    """What --out may end with."""
    from pdejepa.draw import pictures
    from pdejepa.forecast import output

    return [*pictures.FORMATS, output.SUFFIX]


def _write(asked: _Asked, truth: Truth | None, files: list[Path], film: Path | None) -> None:
    from pdejepa.forecast import output

    result, title = asked.result, f"{asked.title}, forecast"
    true = truth.fields if truth is not None else None
    arrays = [path for path in files if path.suffix.lower() == output.SUFFIX]
    pictures = [path for path in files if path not in arrays]
    for path in arrays:
        result.save(path)
    for path in pictures:
        result.plot(path, truth=true, title=title)
    if film is not None:
        result.animate(film, truth=true, title=title)
    drawn = [*pictures, *([film] if film is not None else [])]
    for verb, paths in (("Saved", arrays), ("Drawn", drawn)):
        if paths:
            typer.echo(f"{verb} to {' and '.join(map(str, paths))}")
