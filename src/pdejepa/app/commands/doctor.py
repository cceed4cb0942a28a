"""`pdejepa doctor`: versions, devices, memory and disk, for bug reports."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pdejepa.core.errors import ResourceError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print versions, devices, free disk and memory; nothing personal. Paste it into a bug report."""
    from pdejepa.core.doctor import collect, missing, render

    report = collect()
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        from rich.console import Console

        Console().print(render(report))
    absent = missing(report)
    if absent:
        raise ResourceError(f"Not installed: {', '.join(absent)}. Install pdejepa again with pip.")
