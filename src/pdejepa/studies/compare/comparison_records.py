"""The records of comparisons, read back: checked before they are believed, and named if they are damaged.

One table: one system, size of data, budget and device, and one data set, or the report is refused.

    combined-fno-fast-paper-180s-s0.json      system, solver, recipe, size of data, budget, seed: errors and cost
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from pdejepa.core.errors import DataError
from pdejepa.core.files import read_json
from pdejepa.evaluate.published import metric_of
from pdejepa.studies.compare.competitors import CARDS
from pdejepa.systems import NAMES
from pdejepa.training.budget import UNITS, TotalBudget, Unit

KEYS = ("solver", "errors")  # a file that has them, and a budget, is meant to be a record
NUMBERS = (
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
OPTIONAL_WORDS = ("commit", "data_hash")
OPTIONAL_ERRORS = ("repeat_first", "blind", "n", "n_diverged", "tail_from")


def budget_key(unit: Unit) -> str:
    """Under which name a record tells a budget of that unit: budget_seconds, budget_steps, ..."""
    return f"budget_{unit}"


def budget_of(record: dict[str, Any]) -> TotalBudget:
    return next(TotalBudget(unit, record[key]) for unit in UNITS if (key := budget_key(unit)) in record)


def asked(record: dict[str, Any]) -> tuple[Any, ...]:
    """What the name of a record promises."""
    system, solver, recipe, size, seed = (record[key] for key in ("system", "solver", "recipe", "size", "seed"))
    return system, solver, recipe, size, budget_of(record), seed


def read_record(path: Path) -> dict[str, Any] | None:
    """The record in a JSON file; None if it holds something else, DataError if it is damaged."""
    try:
        plain = read_json(path)
    except ValueError as error:
        raise DataError(f"{path} cannot be read ({error}). Remove it, or choose another folder.") from None
    if not isinstance(plain, dict) or not set(KEYS) <= set(plain) or not _budgets(plain):
        return None
    wrong = _fault(plain)
    if wrong:
        raise DataError(f"{path} is no record that can be used: {wrong}. Remove it, and run its comparison again.")
    return plain


def _budgets(plain: dict[str, Any]) -> list[str]:
    return [key for key in map(budget_key, UNITS) if key in plain]


def _fault(plain: dict[str, Any]) -> str:
    """What is wrong with a record, in a few words; empty if nothing is."""
    for key, known in (("system", NAMES), ("solver", tuple(CARDS))):
        if plain.get(key) not in known:
            return f"unknown {key} {str(plain.get(key))[:40]!r}"
    if len(_budgets(plain)) > 1:
        return f"it tells {' and '.join(_budgets(plain))}"
    errors, steps = plain["errors"], plain.get("steps")
    if not isinstance(errors, dict) or "test" not in errors:
        return "no errors of test"
    told = {split: part if isinstance(part, dict) else {} for split, part in errors.items()}
    found = {f"{split} {key}": part.get(key) for split, part in told.items() for key in ERRORS}
    found |= {f"{split} {key}": part.get(key) or 0 for split, part in told.items() for key in OPTIONAL_ERRORS}
    found |= {key: plain.get(key) for key in (*_budgets(plain), *NUMBERS)}
    found |= {f"steps of {stage}": n for stage, n in steps.items()} if isinstance(steps, dict) else {"steps": None}
    bad = [name for name, value in found.items() if not _is_number(value)]
    bad += [] if type(plain.get("seed")) is int and plain["seed"] >= 0 else ["seed"]
    bad += [f"the name of a split, {name[:40]!r}," for name in told if not re.fullmatch(r"\w+", name, re.ASCII)]
    bad += [key for key in _budgets(plain) if not bad and not plain[key] > 0]
    words = {key: plain.get(key) for key in WORDS} | {key: plain.get(key) or "" for key in OPTIONAL_WORDS}
    bad += [key for key, value in words.items() if not isinstance(value, str) or not value.isprintable()]
    return f"{bad[0]} is missing or wrong" if bad else ""


def _is_number(value: Any) -> bool:
    """Finite and not negative; JSON as Python reads it may also hold NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


def read_records(places: Sequence[Path]) -> list[dict[str, Any]]:
    """Records in files and folders, best first; DataError if one is damaged, or they do not belong together."""
    paths: dict[Path, Path] = {}
    for place in places:
        if not place.exists():
            raise DataError(f"{place} does not exist. Give folders or files with records of comparisons.")
        here = sorted(place.glob("*.json")) if place.is_dir() else [place]
        paths |= {path.resolve(): path for path in here}  # each once, however often it is named
    found = [{**record, "file": str(path)} for path in paths.values() if (record := read_record(path)) is not None]
    _check_asked(found)
    _check_data(found)
    return sorted(found, key=lambda r: (r["system"], *astuple(budget_of(r)), error(r, "test") or 0.0))


def _check_asked(records: list[dict[str, Any]]) -> None:
    """Refuse two answers to the same question."""
    first: dict[tuple[Any, ...], str] = {}
    for record in records:
        question = (*asked(record), record["device"])
        before = first.setdefault(question, record["file"])
        if before != record["file"]:
            words = ", ".join(map(str, question))
            raise DataError(f"{before} and {record['file']} are records of the same: {words}. Name one of them.")


def _check_data(records: list[dict[str, Any]]) -> None:
    """Refuse records of one system and size whose data differ; those of two devices may, in their last digits."""
    first: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in records:
        known = first.setdefault((record["system"], record["size"], record["device"]), record)
        before, now = (str(one.get("data_hash") or "none") for one in (known, record))
        if before != now:
            raise DataError(
                f"{known['file']} and {record['file']} cannot be in one report: expected the same data of "
                f"{record['system']}, got data_hash {before[:12]} and {now[:12]}. Report them apart, or move the one "
                "with the old data away and run its comparison again."
            )


def error(record: dict[str, Any], split: str) -> float | None:
    """The headline error of a split; one norm over the channels where the published numbers have it so."""
    found = record["errors"].get(split)
    return None if found is None else float(found[metric_of(record["system"])])


def named(r: dict[str, Any], records: list[dict[str, Any]]) -> str:
    """The title of a record, with its seed where the table has several of that solver."""
    n = sum(other["solver"] == r["solver"] for other in records)
    return f"{r['title']}, seed {r['seed']}" if n > 1 else str(r["title"])
