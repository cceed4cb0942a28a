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
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Take cases from a data set; see below.")
    ] = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Of a model that comes with pdejepa, in a copy of the repository.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Calibrate bands and keep them beside the weights, in bands.json.

    In 90 of 100 new cases from the law of the training data, nine tenths of the points of a frame lie within
    forecast.half_width(0.9) of the forecast; `pdejepa forecast` draws it. Cases are generated with seeds of their own,
    each in an environment of its own. Outside the training range the bands promise nothing; --check tells how they
    did there.

    Where the equation is not known, or with --data, cases are the trajectories of valid of the data; levels are those
    that their number allows (19 or more for 95 %).
    """
    from pdejepa.core.progress import progress
    from pdejepa.core.tables import Table
    from pdejepa.data.source import Stored
    from pdejepa.evaluate.protocol import trajectory_counts
    from pdejepa.evaluate.truth import has_system, trained_on
    from pdejepa.forecast.bands import calibrate as run
    from pdejepa.forecast.bands import coverage_rows, n_cases, write_bands
    from pdejepa.forecast.forecaster import load
    from pdejepa.forecast.locate import shipped_models

    forecaster = load(model, device)
    folder = forecaster.folder
    assert folder is not None
    if shipped != (folder in shipped_models().values()):
        raise UsageError(
            f"{model} does not come with pdejepa; leave --shipped out."
            if shipped
            else f"{model} comes with pdejepa and stays as it is. Give a run, or a folder of `pdejepa pack`."
        )
    source = Stored.open(data or trained_on(forecaster)) if data or not has_system(forecaster) else None
    if source is not None:
        trajectory_counts(forecaster, ["valid"], source)  # refuses data that do not fit the model
    with progress(n_cases(forecaster, n, check, source), f"calibrate {forecaster.problem.name}") as bar:
        bands = run(forecaster, n, check, bar.advance, source)
    write_bands(bands, folder)
    level = bands.usual_level
    last = zip(forecaster.problem.fields, bands.widths[bands.levels.index(level)][-1], strict=True)
    told = ", ".join(f"{name} {100 * width:.3g} %" for name, width in last)
    typer.echo(
        f"From {bands.n} cases: in {100 * level:.0f} of 100 cases nine tenths of the points of the last frame are "
        f"within, of the rms: {told}."
    )
    if bands.coverage:
        head = ("split", "cases", *(f"{level:.0%} promised" for level in bands.levels))
        typer.echo(Table(head, coverage_rows(bands)).text())
    typer.echo(f"Written to {Path(folder) / 'bands.json'}")
