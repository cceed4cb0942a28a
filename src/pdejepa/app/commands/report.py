"""`pdejepa report`: one HTML page about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(report)


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, finished or not.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The page; RUN/report.html if not given.")
    ] = None,
    no_examples: Annotated[
        bool, typer.Option("--no-examples", help="Leave out example forecasts, which need the solver.")
    ] = False,
    tensorboard: Annotated[
        Path | None,
        typer.Option("--tensorboard", metavar="DIR", help="Also write the metrics there as TensorBoard events."),
    ] = None,
) -> None:
    """Write a page about a run: what was trained, how it went, how good it is, and how to repeat it.

    One HTML file with all pictures in it; any browser shows it, and it can be mailed as it is.
    """
    from pdejepa.app.report.page import write_report
    from pdejepa.core.text import human_bytes

    path = write_report(run, out, not no_examples, typer.echo)
    typer.echo(f"Written to {path} ({human_bytes(path.stat().st_size)}).")
    if tensorboard is not None:
        from pdejepa.app.report.tensorboard import write_board

        typer.echo(f"{write_board(run, tensorboard):,} numbers for TensorBoard in {tensorboard}.")
