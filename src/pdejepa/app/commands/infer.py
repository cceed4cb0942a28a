"""`pdejepa infer`: parameters of an equation from observed frames, with intervals, through a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdejepa.app.commands.options import assignments
from pdejepa.app.commands.output_paths import check_file
from pdejepa.core.errors import UsageError

if TYPE_CHECKING:
    from pdejepa.data.source import Trajectories
    from pdejepa.forecast.forecaster import Forecaster
    from pdejepa.forecast.infer import Inference
    from pdejepa.forecast.known_examples import Examples

DEMO_NOISE, DEMO_FRAMES = 0.01, 4


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(infer)


def infer(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Run folder, model folder, or a shipped model's name.")
    ],
    frames: Annotated[
        Path | None, typer.Option("--frames", metavar="FILE", help="Observed frames, npy: (T, C, *grid); NaN: unseen.")
    ] = None,
    at: Annotated[
        str, typer.Option("--at", metavar="0,1,5", help="Which frames those are; 0, 1, 2, .. if not given.")
    ] = "",
    unknown: Annotated[
        str, typer.Option("--unknown", metavar="A,B", help="Parameters to find; all that --set does not give.")
    ] = "",
    known: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A known parameter; may be repeated.")
    ] = None,
    noise: Annotated[
        str, typer.Option("--noise", metavar="1%", help="Of the measurement, of the rms; estimated if not given.")
    ] = "",
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Data set to calibrate on; that of the training without a system."),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Four frames of test trajectory 0 with 1 % noise, parameters unknown.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Picture of intervals and fit.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="All numbers, as JSON.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Find the parameters under which a forecast meets observed frames, and say how sure that is.

    Least squares through the differentiable forecast, from many starts. Intervals are calibrated on trajectories of
    valid seen in the same way, to hold the truth in 90 of 100 cases. Three frames after the first are often enough.

      pdejepa infer combined --demo
      pdejepa infer combined --frames u.npy --noise 1% --out fit.png
      pdejepa infer burgers --frames u.npy --unknown diffusivity --set forcing_amplitude_1=0.2 ...
    """
    from pdejepa.core.atomic import write_json
    from pdejepa.draw import pictures
    from pdejepa.forecast.forecaster import load
    from pdejepa.forecast.known_examples import Examples
    from pdejepa.forecast.least_squares import findable

    if demo == (frames is not None):
        raise UsageError("Say what was observed: either --frames FILE or --demo.")
    check_file("--out", out, "Pictures", pictures.FORMATS)
    check_file("--json", json_file)
    solver, given = load(model, device), assignments("--set", known or [])
    source = _source(solver, data)
    names = [name.strip() for name in unknown.split(",") if name.strip()]
    truth: dict[str, float] = {}
    if demo:
        fields, truth = _demo(solver, source)
        names = names or [name for name in findable(solver.problem) if name not in given]
        given = {name: value for name, value in truth.items() if name not in names} | given
    else:
        from pdejepa.core.arrays import read_array

        assert frames is not None
        fields = read_array(frames)
    told = _noise(noise or ("1%" if demo else ""))
    result = _run(Examples(solver, source), fields, names, given, _numbers(at), told)
    for estimate in result.estimates:
        true = f"   (truth {truth[estimate.name]:.5g})" if estimate.name in truth else ""
        typer.echo(f"{estimate.sentence}{true}")
    typer.echo(
        f"The fit is {100 * result.misfit:.2g} % off what was observed, whose noise is about "
        f"{100 * result.noise:.2g} %; {result.n_forecasts} forecasts in {result.seconds:.1f} s."
    )
    if json_file is not None:
        write_json(json_file, {**result.to_dict(), "truth": truth or None})
    if demo and out is None and json_file is None:
        out = Path(f"{solver.problem.name}_inference.png")
    if out is not None:
        _draw(solver, fields, result, truth, _numbers(at), out)
        typer.echo(f"Drawn to {out}")


def _source(solver: Forecaster, data: Path | None) -> Trajectories | None:
    """The data set that intervals are calibrated on; None: made by the system."""
    from pdejepa.evaluate.truth import has_system, trained_on

    if data is None and has_system(solver):
        return None
    from pdejepa.data.source import Stored
    from pdejepa.evaluate.protocol import trajectory_counts

    source = Stored.open(data or trained_on(solver))
    trajectory_counts(solver, ["valid"], source)  # refuses data that do not fit the model
    return source


def _demo(solver: Forecaster, data: Trajectories | None) -> tuple[Any, dict[str, float]]:
    """Frames of a test trajectory with noise, and its parameters."""
    import torch

    made = solver.system.generate("test", 1) if data is None else data.block("test", 0, 1)
    n = DEMO_FRAMES + solver.surrogate.history - 1
    fields = made.fields[0].double()
    rms = fields[:n].square().mean((0, *range(2, fields.ndim)), keepdim=True).sqrt()
    draws = torch.Generator().manual_seed(0)
    noisy = fields[:n] + DEMO_NOISE * rms * torch.randn(fields[:n].shape, generator=draws, dtype=torch.float64)
    return noisy.float(), {name: float(values[0]) for name, values in solver.problem.named(made.xi).items()}


def _run(
    examples: Examples, fields: Any, names: list[str], known: dict[str, float], at: list[int], noise: float | None
) -> Inference:
    import sys

    from pdejepa.forecast.infer import infer as find

    def report(sentence: str) -> None:
        if sys.stderr.isatty():
            typer.echo(f"\r\x1b[2K{sentence[:110]}", err=True, nl=False)

    found = find(
        examples.model, fields, names or None, known, at=at or None, noise=noise, examples=examples, report=report
    )
    report("")
    return found


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(f"--at takes numbers of frames, for example 0,1,5; got {text[:60]!r}.") from None


def _noise(text: str) -> float | None:
    """1% or 0.01; None if nothing is said."""
    try:
        return (float(text.rstrip("% ")) / (100 if text.strip().endswith("%") else 1)) if text else None
    except ValueError:
        raise UsageError(f"--noise takes a share of the rms, for example 1% or 0.01; got {text[:60]!r}.") from None


def _draw(
    solver: Forecaster, fields: Any, result: Inference, truth: dict[str, float], at: list[int], path: Path
) -> None:
    import torch

    from pdejepa.draw.intervals import Fit, Interval, draw_intervals
    from pdejepa.forecast.least_squares import is_log

    problem = solver.problem
    parameters = {parameter.name: parameter for parameter in problem.parameters}
    intervals = [
        Interval(
            estimate.name,
            estimate.value,
            estimate.low,
            estimate.high,
            estimate.train,
            is_log(parameters[estimate.name]),
            "" if estimate.outcome == "ok" else estimate.outcome,
            truth.get(estimate.name),
        )
        for estimate in result.estimates
    ]
    last = at[-1] if at else len(fields) - 1
    observed = torch.as_tensor(fields)[-1].reshape(len(problem.fields), *problem.grid)[0].numpy()
    fit = Fit(
        observed,
        result.forecast.fields[0, last, 0].numpy(),
        tuple(axis.numpy() for axis in problem.coordinates.values()),
        problem.axes_names,
        problem.fields[0],
        float(result.forecast.times[last]),
    )
    draw_intervals(intervals, fit, path, f"{problem.title}: parameters from {len(fields)} frames", result.level)
