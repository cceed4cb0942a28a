"""What the recipes of all systems share.  A system's file names only the numbers in which it differs.

paper   the published sizes, losses and schedules
fast    ours: the same stages and equations, sized and tuned for minutes on one GPU
laptop  ours: half an hour on two CPU cores for small systems, three hours at most for large ones
long    ours: laptop with broad states, twice the data and up to three times the steps, for an hour or two
tiny    for tests and a first look: all stages in a minute or two on two CPU cores
"""

from __future__ import annotations

from pdejepa.method.recipes.columns.fast import LARGE, FastColumn, fast
from pdejepa.method.recipes.columns.laptop import LARGE_PLANE, LONG, PLANE, THIRD, LaptopColumn, laptop, long
from pdejepa.method.recipes.columns.paper import PaperColumn, paper
from pdejepa.method.recipes.columns.tiny import FLAT, TINY_COSTS, TinyColumn, tiny

__all__ = [
    "FLAT",
    "LARGE",
    "LARGE_PLANE",
    "LONG",
    "PLANE",
    "THIRD",
    "TINY_COSTS",
    "FastColumn",
    "LaptopColumn",
    "PaperColumn",
    "TinyColumn",
    "fast",
    "laptop",
    "long",
    "paper",
    "tiny",
]
