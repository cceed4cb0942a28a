"""`pdejepa demo`: one forecast inside the training range and one outside of it, beside the solver."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdejepa.app.commands.output_paths import check_folder
from pdejepa.core.errors import CheckpointError, NumericalError, UsageError

if TYPE_CHECKING:
    from pdejepa.evaluate.demo_scenes import Shown
    from pdejepa.forecast.forecaster import Forecaster

FIRST = "combined"
MAX_FORCING = 3  # numbers of a forcing that are told one by one


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(demo)


def demo(
    system: Annotated[
        str | None,
        typer.Argument(
            metavar="[SYSTEM]", help=f"Whose model; {FIRST}, or the first there is, if not given.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Run or model folder instead of a shipped model.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where demo.png and demo.gif go.")] = Path(
        "pdejepa-demo"
    ),
    index: Annotated[
        int, typer.Option("--index", metavar="N", min=0, max=999_999_999, help="Which trajectory of each split.")
    ] = 0,
    device: Annotated[str, typer.Option("--device", help="cpu, auto, cuda or cuda:N.")] = "cpu",
) -> None:
    """Forecast two trajectories that the model has not seen, compare them with the solver, and draw them.

    One lies inside the training range, the other outside. No network and no GPU are needed.
    Ends with 5 if a forecast became unstable; what is sound of it is drawn all the same.
    """
    from pdejepa.core.progress import progress
    from pdejepa.evaluate.demo_scenes import inside_scene, outside_scene, show
    from pdejepa.forecast.forecaster import load

    check_folder("--out", out)
    name, folder = _choose(system, model)
    forecaster = load(folder, device)
    _check_system(forecaster, system, name)
    typer.echo(_introduction(forecaster, name))
    shown = []
    with progress(2, f"demo {forecaster.system.name}") as bar:
        for make in (inside_scene, outside_scene):
            shown.append(show(forecaster, make(forecaster, index)))
            bar.advance()
    for one, where in zip(shown, ("Inside the training range", "Outside the training range"), strict=True):
        typer.echo("\n".join(("", f"{where}: {one.scene.how}", *_lines(one))))
    typer.echo(f"\n{_timed(forecaster, shown)}")
    typer.echo(f"Drawn to {' and '.join(str(path) for path in _draw(shown, out))}")
    typer.echo("\n".join(("", "What to try next:", *(f"  {line}" for line in _next(forecaster, name)))))
    for one in shown:
        if not one.result.is_stable:
            raise NumericalError(f"The forecast is {one.result.outcome[0].sentence} ({one.scene.how}).")


# ---- which model -----------------------------------------------------------------------------------------------
def _choose(system: str | None, model: str | None) -> tuple[str, str | Path]:
    """The name to tell and the folder to load: what was asked for, or a model that comes with the package."""
    from pdejepa.forecast.locate import shipped_models
    from pdejepa.systems import get

    if model is not None:
        return model, model
    shipped = shipped_models()
    if system is None and shipped:
        name = FIRST if FIRST in shipped else next(iter(shipped))
        return name, shipped[name]
    if system in shipped:
        return system, shipped[system]
    wanted = get(system or FIRST).name  # refuses, with a hint
    for name, folder in shipped.items():
        if _system_of(folder) == wanted:
            return name, folder
    there = f"No model of {wanted}" if shipped else "No model"
    others = f" (there are: {', '.join(shipped)})" if shipped else ""
    raise CheckpointError(
        f"{there} comes with this pdejepa{others}; train one, which takes minutes on two CPU cores, with: "
        f"pdejepa train {wanted} --recipe tiny --out runs/{wanted}; then: pdejepa demo --model runs/{wanted}"
    )


def _system_of(folder: Path) -> str:
    """The system of a model; empty if it does not tell."""
    from pdejepa.forecast.header import read

    try:
        return str(read(folder).get("system"))
    except CheckpointError:
        return ""


def _check_system(forecaster: Forecaster, system: str | None, name: str) -> None:
    from pdejepa.systems import get

    there = forecaster.system.name
    if system not in (None, name) and get(str(system)).name != there:
        raise UsageError(f"{name} is a model of {there}, not of {system}; leave out one of the two.")


# ---- what is told ----------------------------------------------------------------------------------------------
def _introduction(forecaster: Forecaster, name: str) -> str:
    """The model in a few lines: what it is, how large, and what it was trained on."""
    from pdejepa.app.commands.systems import parameters_in_short
    from pdejepa.core.text import human_bytes
    from pdejepa.evaluate.demo_scenes import inside_scene, support_of

    system, details = forecaster.system, forecaster.details
    n_parameters = sum(weight.numel() for weight in forecaster.surrogate.parameters())
    found = support_of(forecaster, inside_scene(forecaster, 0).case).parameters
    ranges = [{"name": one.name, "train": [one.low, one.high]} for one in found]
    n_new = forecaster.n_frames - forecaster.surrogate.history
    lines = (
        f"{system.title}: {system.equation}",
        f"Model {name}: recipe {details['recipe']}{', polished' if details['polish'] else ''}, "
        f"{n_parameters:,} parameters, {human_bytes(details['weights_bytes'])}.",
        f"Trained on {parameters_in_short({'parameters': ranges})}; {n_new} new frames from "
        f"{forecaster.surrogate.history} observed.",
    )
    return "\n".join(lines)


def _lines(one: Shown) -> list[str]:
    """Parameters, what lies outside, errors and times of one forecast."""
    from pdejepa.core.text import percent
    from pdejepa.forecast.support import FORCING

    named = {name: float(values[0]) for name, values in one.scene.case.system.named(one.scene.case.xi).items()}
    n_forcing = sum(name.startswith(FORCING) for name in named)
    is_long = n_forcing > MAX_FORCING
    plain = [f"{name} = {value:.4g}" for name, value in named.items() if not (is_long and name.startswith(FORCING))]
    forcing = [f"{n_forcing} numbers of the forcing"] if is_long else []
    errors = one.errors
    solve = "" if one.truth.outcome == "ok" else f" (the solve was {one.truth.outcome})"
    return [
        f"  {', '.join(plain + forcing)}",
        *(f"  {sentence}" for sentence in one.result.support.sentences or (str(one.result.support),)),
        f"  relative L2 error {percent(errors.forecast)}; repeating the observed frame {percent(errors.repeat)}",
        f"  forecast {_milliseconds(one.forecast_seconds)}, solver {_milliseconds(one.solver_seconds)}{solve}",
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.{1 if seconds < 0.1 else 0}f} ms"


def _timed(forecaster: Forecaster, shown: list[Shown]) -> str:
    """What the times are times of."""
    import torch

    from pdejepa.evaluate.demo_scenes import N_CALLS

    device = str(forecaster.device)
    n_threads = torch.get_num_threads()
    where = device if device != "cpu" else f"cpu, {n_threads} thread{'s' * (n_threads > 1)}"
    once = " The solver is slow here, so it was called only once." if any(one.is_solved_once for one in shown) else ""
    return (
        f"Times are for one trajectory ({where}), the median of {N_CALLS} calls after one to warm up: the forecast "
        "from the observed to all new frames, and the solver that makes the data, from the initial state to the same "
        f"frames.{once}"
    )


def _next(forecaster: Forecaster, name: str) -> list[str]:
    """Commands to copy."""
    from pdejepa.evaluate.demo_scenes import push
    from pdejepa.forecast.locate import shipped_models

    system, shipped, word = forecaster.system.name, shipped_models(), shlex.quote(name)
    pushed = push(forecaster.system, forecaster.surrogate.statistics.ranges)
    change = "".join(f" --set {key}={value:.3g}" for key, value in pushed.items())
    others = [f"pdejepa demo {other}" for other in shipped if other != name][:1]
    return [
        f"pdejepa forecast {word} --from test:3{change} --compare --out mine.png --animate mine.gif",
        f"pdejepa evaluate {word}{' --n 20' if name in shipped else ''}",
        f"pdejepa systems {system}",
        *(others or [f"pdejepa train {system} --recipe tiny --out runs/{system}"]),
    ]


def _draw(shown: list[Shown], out: Path) -> tuple[Path, Path]:
    from pdejepa.draw.stack import animate_comparisons, draw_comparisons
    from pdejepa.forecast.output import trajectory

    pairs: list[Any] = []
    for one, where in zip(shown, ("inside", "outside"), strict=True):
        case = one.scene.case
        title = f"{case.system.title}, {case.split} {case.index}, {where} the training range"
        pairs.append((trajectory(one.result, 0, one.truth.fields), trajectory(one.result, 0), title))
    picture, film = out / "demo.png", out / "demo.gif"
    draw_comparisons(pairs, picture)
    animate_comparisons(pairs, film)
    return picture, film
