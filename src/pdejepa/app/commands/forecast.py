"""`pdejepa forecast`: forecast one trajectory, say how far to trust it, and draw it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdejepa.app.commands.output_paths import check_file, check_folder
from pdejepa.core.errors import NumericalError, UsageError

if TYPE_CHECKING:
    from pdejepa.evaluate.cases import Case, Truth
    from pdejepa.forecast.interface import Forecast


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
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a parameter; may be repeated.")
    ] = None,
    frames: Annotated[
        int | None, typer.Option("--frames", help="New frames; as many as the training data have if not given.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Picture: png, pdf, svg, jpg or webp.")
    ] = None,
    animate: Annotated[Path | None, typer.Option("--animate", metavar="FILE", help="Animation: gif or webp.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Solve the equation too, and show the error.")] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Forecast a trajectory and draw it; with --compare beside the solver's.

    A model knows initial states like those it was trained on; the command says where it does not see a state as it is.
    Without --out and --animate the picture is written to SYSTEM_SPLIT_INDEX_forecast.png in the present folder.
    Ends with 5 if the forecast became unstable; what is sound of it is drawn all the same.
    """
    from pdejepa import load
    from pdejepa.draw import animation, pictures
    from pdejepa.evaluate.cases import find_case

    values = _parse_changes(changes or [])
    check_file("--out", out, "Pictures", pictures.FORMATS)
    check_file("--animate", animate, "Animations", animation.FORMATS)
    if out is None and animate is None:
        check_folder("--out", Path())
    solver = load(model, device)
    case = find_case(source, solver.system, values, solver.device)
    support = {"support": case.sibling()} if "support" in solver.card.reads else {}
    result = solver.forecast(case.observed(solver.card.history), case.xi, n_frames=frames, **support)
    typer.echo(_headline(case, result))
    for sentence in result.support.sentences:
        typer.echo(sentence)
    truth = case.truth(result.times) if compare else None
    if truth is not None:
        typer.echo(_comparison(result, truth))
    if out is None and animate is None:
        out = Path(f"{case.system.name}_{case.split}_{case.index}_forecast.png")
    _draw(case, result, truth, out, animate)
    typer.echo(f"Drawn to {' and '.join(str(path) for path in (out, animate) if path is not None)}")
    if not result.is_stable:
        raise NumericalError(f"The forecast is {result.outcome[0].sentence}. The frames before were kept.")


def _parse_changes(texts: list[str]) -> dict[str, float]:
    values = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            values[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise UsageError(f"--set takes NAME=VALUE with a number, for example viscosity=5e-5; got {text[:100]!r}.")
    return values


def _headline(case: Case, result: Forecast) -> str:
    n_new = result.new.shape[1]
    return (
        f"{case.system.title}, {case.split} {case.index}: {n_new} new frames up to t = {float(result.times[-1]):.6g}, "
        f"forecast in {result.seconds:.2f} s."
    )


def _comparison(result: Forecast, truth: Truth) -> str:
    """Errors in one sentence, with what repeating the first frame would give."""
    from pdejepa.core.text import percent
    from pdejepa.evaluate.cases import forecast_errors

    errors = forecast_errors(result, truth)
    text = (
        f"Relative L2 error {percent(errors.forecast)}, in the last frame {percent(errors.last)}; repeating the last "
        f"observed frame would give {percent(errors.repeat)}. The solver took {truth.seconds:.2f} s."
    )
    return text if truth.outcome == "ok" else f"{text} The solve was {truth.outcome}."


def _draw(case: Case, result: Forecast, truth: Truth | None, out: Path | None, animate: Path | None) -> None:
    from pdejepa.draw.pictures import animate_trajectory, draw_trajectory
    from pdejepa.draw.truth_and_forecast import animate_comparison, draw_comparison

    title = f"{case.system.title}, {case.split} {case.index}, forecast"
    guess = case.trajectory(result.fields[0], result.times, result.n_observed)
    true = case.trajectory(truth.fields, result.times) if truth is not None else None
    if out is not None and true is not None:
        draw_comparison(true, guess, out, title)
    elif out is not None:
        draw_trajectory(guess, out, title)
    if animate is not None and true is not None:
        animate_comparison(true, guess, animate, title)
    elif animate is not None:
        animate_trajectory(guess, animate, title)
