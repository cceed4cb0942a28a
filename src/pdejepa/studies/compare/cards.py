"""Who can take part in a comparison: the method of this package, the published solvers, and registered ones."""

from __future__ import annotations

from dataclasses import replace

from pdejepa import baselines
from pdejepa.evaluate.record import METHOD
from pdejepa.forecast.forecaster import CARD
from pdejepa.forecast.interface import Card


def names() -> tuple[str, ...]:
    """All of them, the method first."""
    return (METHOD, *baselines.names())


def card_of(name: str) -> Card:
    """What a competitor needs and makes; ConfigError for unknown names."""
    solver, _, network = name.partition("@")
    if solver == METHOD:
        return CARD
    card = baselines.get(solver).card
    return replace(card, title=f"{card.title}, size of {network}") if network else card
