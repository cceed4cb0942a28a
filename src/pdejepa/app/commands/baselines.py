"""`pdejepa baselines`: the published and classical solvers that comparisons can use, with their cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pdejepa.baselines import Baseline
    from pdejepa.forecast.interface import Card


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(baselines)


def baselines(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Solvers to describe in detail.")] = None,
) -> None:
    """List the published and classical solvers, or tell all about some of them."""
    from pdejepa import baselines as registry

    if not names:
        typer.echo(_table())
    for name in names or ():
        typer.echo(_details(registry.get(name)))


def _table() -> str:
    """The solvers that are trained, then those that are fitted at once."""
    from pdejepa import baselines as registry
    from pdejepa.core.tables import Table

    head = ("name", "title", "begins with", "needs", "adapts", "stages", "makes")
    trained, classical = [], []
    for name in registry.names():
        card = registry.get(name).card
        needs = ", ".join(sorted(card.needs)) or "-"
        if card.is_closed_form:
            classical.append((name, card.title, _frames(card), needs, card.package or "-"))
        else:
            stages = ", ".join(card.stages)
            trained.append((name, card.title, _frames(card), needs, card.adapts, stages, _made(card)))
    other = Table(("name", "title", "begins with", "needs", "package"), classical).text()
    return f"{Table(head, trained).text()}\n\nClassical solvers, fitted at once:\n{other}"


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
