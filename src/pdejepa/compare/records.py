"""The records of comparisons, read back: checked before they are believed, and named if they are damaged.

    combined-fno-fast-paper-180s-s0.json      system, solver, recipe, size of data, budget, seed: errors and cost
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pdejepa.compare.entries import CARDS
from pdejepa.core.errors import DataError
from pdejepa.core.files import read_json
from pdejepa.systems import NAMES

KEYS = ("solver", "errors", "budget_seconds")  # a file that has them all is meant to be a record
NUMBERS = (
    "budget_seconds",
    "true_frames",
    "parameters",
    "peak_memory_bytes",
    "ms_per_forecast",
    "ms_per_adaptation",
    "seconds",
    "learning_rate_factor",
)
WORDS = ("title", "recipe", "size", "device", "weights", "adapts")
ERRORS = ("rel_l2", "rel_l2_joint", "tail")


def read_record(path: Path) -> dict[str, Any] | None:
    """The record in a JSON file; None if it holds something else, DataError if it is damaged."""
    try:
        plain = read_json(path)
    except ValueError as error:
        raise DataError(f"{path} cannot be read ({error}). Remove it, or choose another folder.") from None
    if not isinstance(plain, dict) or not set(KEYS) <= set(plain):
        return None
    wrong = _fault(plain)
    if wrong:
        raise DataError(f"{path} is no record that can be used: {wrong}. Remove it, and run its comparison again.")
    return plain


def _fault(plain: dict[str, Any]) -> str:
    """What is wrong with a record, in a few words; empty if nothing is."""
    for key, known in (("system", NAMES), ("solver", tuple(CARDS))):
        if plain.get(key) not in known:
            return f"unknown {key} {str(plain.get(key))[:40]!r}"
    errors, steps = plain["errors"], plain.get("steps")
    if not isinstance(errors, dict) or "test" not in errors:
        return "no errors of test"
    told = {split: part if isinstance(part, dict) else {} for split, part in errors.items()}
    found = {f"{split} {key}": part.get(key) for split, part in told.items() for key in ERRORS}
    found |= {key: plain.get(key) for key in NUMBERS}
    found |= steps if isinstance(steps, dict) else {"steps": None}
    bad = [name for name, value in found.items() if not _is_number(value)]
    bad += [key for key in WORDS if not isinstance(plain.get(key), str)]
    return f"{bad[0]} is missing or wrong" if bad else ""


def _is_number(value: Any) -> bool:
    """Finite and not negative; JSON as Python reads it may also hold NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
