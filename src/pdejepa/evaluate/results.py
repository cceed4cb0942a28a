"""The record of one evaluation: a JSON file with fixed keys, and a table for people.

heat-tiny-s0.json    burgers-paper-geo-polish-s1.json       <system>-<recipe>[-<variant>][-polish]-s<seed>.json
{"system", "recipe", "variant", "polish", "seed", "observed_frames", "errors": {split: {...}}, "seconds": {...},
 "device", "torch", "commit", "data_hash", "weights_sha256", "weights_bytes"}
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pdejepa.core.files import write_json
from pdejepa.core.text import percent
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.header import STAGE_SECONDS

LONG = ("trajectories", "per_frame")  # kept in the record, too long for the model's config.json
COLUMNS = (
    ("rel L2", "rel_l2"),
    ("median", "median"),
    ("last frame", "last_frame"),
    ("all frames", "rel_l2_all_frames"),
    ("joint", "rel_l2_joint"),
    ("repeat first", "repeat_first"),
)


Errors = dict[str, dict[str, Any]]  # split -> what `evaluate` found


def make_result(forecaster: Forecaster, errors: Errors, observed: int | None = None) -> dict[str, Any]:
    """The record of `evaluate(forecaster, ...)`; what is not known is an empty text or None."""
    details = forecaster.details
    seconds = details.get("seconds", {})
    return {
        "system": forecaster.system.name,
        "recipe": details.get("recipe", "custom"),
        "variant": forecaster.surrogate.variant,
        "polish": bool(details.get("polish", False)),
        "seed": details.get("seed", 0),
        "observed_frames": observed or forecaster.surrogate.history,
        "errors": errors,
        "seconds": {name: seconds.get(name) for name in STAGE_SECONDS},
        "device": details.get("device", ""),
        "torch": details.get("torch", ""),
        "commit": details.get("commit", ""),
        "data_hash": details.get("data_hash", ""),
        "weights_sha256": details.get("weights_sha256", ""),
        "weights_bytes": details.get("weights_bytes", 0),
    }


def result_name(result: dict[str, Any]) -> str:
    """The file name of a record."""
    variant = "" if result["variant"] == "physics" else f"-{result['variant']}"
    polish = "-polish" if result["polish"] else ""
    recipe = re.sub(r"[^A-Za-z0-9_.]+", "_", str(result["recipe"]))  # it may come from anywhere
    return f"{result['system']}-{recipe}{variant}{polish}-s{result['seed']}.json"


def write_result(result: dict[str, Any], path: Path) -> dict[str, Any]:
    """Write the record and return it; splits that an earlier record of the same forecasts holds are kept."""
    result = {**result, "errors": {**earlier_errors(result, path), **result["errors"]}}
    write_json(path, result)
    return result


def earlier_errors(result: dict[str, Any], path: Path) -> Errors:
    """The errors in the record at `path`, if there is one of the same forecasts."""
    before = _read(path)
    is_same = all(before.get(key) == result[key] for key in ("system", "weights_sha256", "observed_frames"))
    return before["errors"] if is_same else {}


def larger(known: Errors, counts: dict[str, int]) -> str:
    """`1,000 trajectories of test`: the first split that is known from more than `counts`; empty if none is."""
    for split, n in counts.items():
        found = known.get(split)
        before = found.get("n") if isinstance(found, dict) else None
        if isinstance(before, int) and before > n:
            return f"{before:,} trajectories of {split}"
    return ""


def _read(path: Path) -> dict[str, Any]:
    """An earlier record, or nothing if there is none or it cannot be understood."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("errors"), dict) else {}


def brief_errors(errors: Errors) -> Errors:
    """Errors without the long lists, for config.json and the model card."""
    return {split: {key: value for key, value in found.items() if key not in LONG} for split, found in errors.items()}


def result_rows(result: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of the table: one row per split."""
    head = ("split", "n", *(label for label, _ in COLUMNS), "unstable")
    rows = []
    for split, found in result["errors"].items():
        values = (percent(found[key]) for _, key in COLUMNS)
        rows.append((split, f"{found['n']:,}", *values, str(found["n_unstable"])))
    return head, rows


def result_table(result: dict[str, Any]) -> str:
    """The table as plain text, columns aligned."""
    head, rows = result_rows(result)
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    lines = []
    for first, *others in (head, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join((first.ljust(widths[0]), *cells)))
    return "\n".join(lines)
