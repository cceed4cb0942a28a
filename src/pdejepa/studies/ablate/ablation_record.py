"""The record of an ablation, DIR/ablate.json: all numbers of all runs, and where they come from.

{"format": "pdejepa-ablate", "format_version": 1, "system", "title", "fields", "recipe", "seed", "size", "device",
 "torch", "commit", "data_hash", "splits": {split: {"is_ood", "is_ours"}}, "what": [...], "runs": {name: row},
 "failed": {name: why}}

A row has the keys of an evaluation (`evaluate.results`) and: n (trajectories asked for, null: all), changes (setting
-> value, against the base), shared (stages taken over), steps per stage, parameters, integrator, n_substeps,
anchor_weight, and, where they were measured, geometry, rollouts {split: ...} and reconstruct.  `failed` holds the runs
whose training diverged (absent in older records).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdejepa.core.errors import DataError
from pdejepa.core.files import write_json
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.studies.ablate.runs import BASE, WHAT

NAME = "ablate.json"
FORMAT = "pdejepa-ablate"
FORMAT_VERSION = 1
MAX_BYTES = 64_000_000
KEYS = ("system", "title", "fields", "recipe", "seed", "device", "splits", "what", "runs")

Record = dict[str, Any]


def new_record(base: Forecaster, what: Sequence[str], n: int | None, before: Record | None) -> Record:
    """The record of a base and its runs on n trajectories; what an earlier record of the same holds is kept."""
    details, system = base.details, base.system
    known = before["runs"].get(BASE, {}) if before is not None else {}
    is_same = known.get("weights_sha256") == details["weights_sha256"] and known.get("n") == n
    kept = before if before is not None and is_same else {"what": [], "runs": {}}
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "system": system.name,
        "title": system.title,
        "fields": list(system.fields),
        **{key: details[key] for key in ("recipe", "seed", "size", "device", "torch", "commit", "data_hash")},
        "splits": {split.name: {"is_ood": split.is_ood, "is_ours": split.is_ours} for split in system.splits},
        "what": [name for name in WHAT if name in what or name in kept["what"]],
        "runs": dict(kept["runs"]),
        "failed": dict(kept.get("failed", {})),
    }


def note_failure(record: Record, name: str, why: str) -> None:
    """A run that diverged has no row, and the first sentence of why."""
    record["runs"].pop(name, None)
    record["failed"][name] = why.split(". ")[0].rstrip(".")


def write_record(record: Record, folder: Path) -> Path:
    write_json(folder / NAME, record)
    return folder / NAME


def read_record(path: Path) -> Record:
    """The record in a file, or in the folder of an ablation; DataError for anything else."""
    file = path / NAME if path.is_dir() else path
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataError(
            f"{file} cannot be read ({error.strerror}). Give the --out folder of an ablation, or its {NAME}."
        ) from None
    again = "Give the command that wrote it, pdejepa ablate NAME --out DIR, once more: it measures what is missing."
    try:
        record = json.loads(raw) if len(raw) <= MAX_BYTES else None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is damaged ({str(error)[:100]}). {again}") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise DataError(f'{file} is no record of an ablation: "format" must be "{FORMAT}". Give the {NAME} of one.')
    if record.get("format_version") != FORMAT_VERSION:
        raise DataError(f"{file} has format {record.get('format_version')!r}; this version reads {FORMAT_VERSION}.")
    missing = [key for key in KEYS if key not in record]
    if missing or not isinstance(record["runs"], dict):
        raise DataError(f"{file} is damaged: {', '.join(missing) or 'runs'} missing. {again}")
    return record


def earlier_record(folder: Path) -> Record | None:
    """What an earlier call left, or None; what cannot be understood is measured again."""
    try:
        return read_record(folder) if (folder / NAME).exists() else None
    except DataError:
        return None


def record_name(record: Record) -> str:
    """`combined-fast`, or `combined-fast-s1` for another seed than 0: what marks in documents call it."""
    recipe = re.sub(r"[^A-Za-z0-9_.]+", "_", str(record["recipe"]))
    return f"{record['system']}-{recipe}" + (f"-s{record['seed']}" if record["seed"] else "")
