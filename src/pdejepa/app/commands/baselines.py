"""`pdejepa baselines`: the published solvers that comparisons can use, with their cards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pdejepa.baselines import Baseline
    from pdejepa.forecast.interface import Card


def register(app: typer.Typer) -> None:
    """Add the command, which lists, and its word `load`."""
    app.command()(baselines)


def baselines(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME | load NAME FILE]", help="One solver in detail, or check a file of weights."),
    ] = None,
) -> None:
    """List the published solvers, tell all about one, or check that a public file of weights fits.

    `pdejepa baselines load poseidon FILE` reads weights that others have published, safely, and reports what fits.
    """
    from pdejepa import baselines as registry
    from pdejepa.core.errors import UsageError

    words = words or []
    if not words:
        typer.echo(_table())
    elif words[0] == "load":
        if len(words) != 3:
            raise UsageError("Give a solver and a file: pdejepa baselines load NAME FILE.")
        typer.echo(_load(words[1], Path(words[2])))
    else:
        for name in words:
            typer.echo(_details(registry.get(name)))


def _table() -> str:
    from pdejepa import baselines as registry
    from pdejepa.core.tables import Table

    head = ("name", "title", "begins with", "needs", "adapts", "stages", "makes", "official weights")
    lines = []
    for name in registry.NAMES:
        card = registry.get(name).card
        needs = ", ".join(sorted(card.needs)) or "-"
        stages, official = ", ".join(card.stages), "yes" if card.has_official else ""
        lines.append((name, card.title, _frames(card), needs, card.adapts, stages, _made(card), official))
    return Table(head, lines).text()


def _frames(card: Card) -> str:
    """True frames of a forecast, and how many it is made for if so many are known."""
    words = "1 frame" if card.history == 1 else f"{card.history} frames"
    return f"{words}, at best {card.looks_at}" if card.looks_at > card.history else words


def _made(card: Card) -> str:
    forecasts = ("drawn forecasts" if card.is_stochastic else "forecasts") if card.is_forecaster else ""
    return ", ".join(word for word in (forecasts, "representations" if card.has_encoder else "") if word)


def _details(solver: type[Baseline]) -> str:
    """The header of the file, which says what the solver is and where ours differs, and its card."""
    import sys

    card = solver.card
    facts = {
        "needs": ", ".join(sorted(card.needs)) or "nothing but the fields",
        "begins with": _frames(card),
        "adapts": card.adapts,
        "stages": ", ".join(card.stages),
        "makes": _made(card),
    }
    lines = [f"{card.title}: {card.paper}", *(f"  {name:<12} {value}" for name, value in facts.items())]
    return "\n".join([*lines, "", (sys.modules[solver.__module__].__doc__ or "").strip(), ""])


def _load(name: str, path: Path) -> str:
    """Read a public file of weights into a fresh solver of the published size, and tell what fitted."""
    from pdejepa import baselines as registry
    from pdejepa.core.errors import UsageError

    solver = registry.get(name)
    if not solver.card.has_official:
        able = ", ".join(n for n in registry.NAMES if registry.get(n).card.has_official)
        raise UsageError(f"There are no published weights for {solver.card.title}; there are for {able}.")
    report: str = solver.check_official(path)
    return report
