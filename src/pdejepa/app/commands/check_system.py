"""`pdejepa check-system`: does a system, also one of your own, keep the contract that all systems keep?"""

from __future__ import annotations

from typing import Annotated

import typer

from pdejepa.core.errors import DataError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("check-system")(check_system)


def check_system(
    system: Annotated[
        str, typer.Argument(metavar="NAME", help="A known system, or one of your own: module:Class or file.py:Class.")
    ],
) -> None:
    """Run the contract of all systems on one: declarations, random laws, solver, right-hand side, invariants.

    A system of your own is found by other commands when PDEJEPA_SYSTEMS=file.py:Class is set, or when an installed
    package names it in the entry points pdejepa.systems. docs/own_system.md has an example.
    """
    from pdejepa.systems import from_path, get
    from pdejepa.systems.contract import check

    found = from_path(system)() if ":" in system else get(system)
    n_broken = 0
    for result in check(found):
        typer.echo(f"  {'ok    ' if not result.fault else 'BROKEN'}  {result.name}")
        if result.fault:
            n_broken += 1
            typer.echo(f"          {result.fault}")
    if n_broken:
        raise DataError(f"{found.name} breaks {n_broken} of the promises above.")
    typer.echo(f"{found.name} keeps all of them.")
