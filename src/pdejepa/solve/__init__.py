"""Batched time integration with an outcome for every row."""

from pdejepa.solve.outcome import Fields, Outcome

__all__ = ["Fields", "Outcome"]
