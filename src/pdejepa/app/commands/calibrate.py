"""`pdejepa calibrate`: bands around the forecasts of a model, from trajectories whose future is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdejepa.core.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(calibrate)


def calibrate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Run folder or model folder.")],
    n: Annotated[int, typer.Option("--n", min=20, help="Cases that decide about the width of the bands.")] = 360,
    check: Annotated[
        int, typer.Option("--check", min=0, help="Then see how often they hold on so many cases of every split.")
    ] = 120,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Calibrate bands and keep them beside the weights, in bands.json.

    In 90 of 100 new cases from the law of the training data, nine tenths of the points of a frame lie within
    forecast.half_width(0.9) of the forecast; `pdejepa forecast` draws it. Cases are generated with seeds of their own,
    each in an environment of its own. Outside the training range the bands promise nothing; --check tells how they
    did there.
    """
    from pdejepa.core.progress import progress
    from pdejepa.core.tables import Table
    from pdejepa.forecast.bands import calibrate as run
    from pdejepa.forecast.bands import coverage_rows, n_cases, write_bands
    from pdejepa.forecast.forecaster import load
    from pdejepa.forecast.locate import shipped_models

    forecaster = load(model, device)
    folder = forecaster.folder
    assert folder is not None
    if folder in shipped_models().values():
        raise UsageError(f"{model} comes with pdejepa and stays as it is. Give a run, or a folder of `pdejepa pack`.")
    with progress(n_cases(forecaster, n, check), f"calibrate {forecaster.problem.name}") as bar:
        bands = run(forecaster, n, check, bar.advance)
    write_bands(bands, folder)
    last = zip(forecaster.problem.fields, bands.widths[2][-1], strict=True)
    told = ", ".join(f"{name} {100 * width:.3g} %" for name, width in last)
    typer.echo(f"In 90 of 100 cases nine tenths of the points of the last frame are within, of the rms: {told}.")
    if bands.coverage:
        head = ("split", "cases", *(f"{level:.0%} promised" for level in bands.levels))
        typer.echo(Table(head, coverage_rows(bands)).text())
    typer.echo(f"Written to {Path(folder) / 'bands.json'}")
