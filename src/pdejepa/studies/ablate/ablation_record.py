"""The record of an ablation, DIR/ablate.json: all numbers of all runs, and where they come from.

{"format": "pdejepa-ablate", "format_version": 1, "system", "title", "fields", "recipe", "seed", "size", "device",
 "torch", "commit", "data_hash", "splits": {split: {"is_ood", "is_ours"}}, "what": [...], "runs": {name: run},
 "failed": {name: why}}

`failed` holds the runs whose training diverged; the committed records are older and lack it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pdejepa.core.errors import DataError
from pdejepa.core.files import read_json, write_json
from pdejepa.evaluate.evaluations import Evaluation
from pdejepa.evaluate.geometry import Geometry
from pdejepa.evaluate.record import Checked, Number, parse, to_plain
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.studies.ablate.latent_rollouts import Rollouts
from pdejepa.studies.ablate.runs import BASE, WHAT

NAME = "ablate.json"
FORMAT: Literal["pdejepa-ablate"] = "pdejepa-ablate"
FORMAT_VERSION: Literal[1] = 1


@dataclass(frozen=True)
class Reconstruction(Checked):
    """Errors of decoding the true latents of test, by a decoder that was trained for `steps` steps."""

    rel_l2: Number
    rel_l2_joint: Number
    n: int
    steps: int | None = None
    seconds: Number = None
    weights_sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunRecord(Evaluation):
    """One run.

    n: trajectories asked for, None: all                 changes: setting -> value, against the base
    shared: stages taken over from the base              steps: of each stage
    geometry, rollouts, reconstruct: where they were measured
    """

    n: int | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    steps: dict[str, int] = field(default_factory=dict)
    parameters: int
    integrator: str
    n_substeps: int
    anchor_weight: float
    geometry: Geometry | None = None
    rollouts: dict[str, Rollouts] = field(default_factory=dict)
    reconstruct: Reconstruction | None = None


@dataclass(frozen=True)
class SplitKind:
    """Whether a split is out of distribution, and whether it is not part of the published benchmark."""

    is_ood: bool
    is_ours: bool


@dataclass(frozen=True, kw_only=True)
class Ablation(Checked):
    """The whole record; see the legend above."""

    format: Literal["pdejepa-ablate"]
    format_version: Literal[1]
    system: str
    title: str
    fields: tuple[str, ...]
    recipe: str
    seed: int
    size: str = "paper"
    device: str
    torch: str = ""
    commit: str = ""
    data_hash: str = ""
    splits: dict[str, SplitKind]
    what: tuple[str, ...]
    runs: dict[str, RunRecord]
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`combined-fast`, or `combined-fast-s1` for another seed than 0: what marks in documents call it."""
        recipe = re.sub(r"[^A-Za-z0-9_.]+", "_", self.recipe)
        return f"{self.system}-{recipe}" + (f"-s{self.seed}" if self.seed else "")


# ---- making ------------------------------------------------------------------------------------------------------
def new_record(base: Forecaster, what: Sequence[str], n: int | None, before: Ablation | None) -> Ablation:
    """The record of a base and its runs on n trajectories; what an earlier record of the same holds is kept."""
    details, system = base.details, base.system
    known = before.runs.get(BASE) if before is not None else None
    is_same = known is not None and known.weights_sha256 == details["weights_sha256"] and known.n == n
    kept = before if is_same else None
    return Ablation(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        system=system.name,
        title=system.title,
        fields=system.fields,
        **{key: details[key] for key in ("recipe", "seed", "size", "device", "torch", "commit", "data_hash")},
        splits={split.name: SplitKind(split.is_ood, split.is_ours) for split in system.splits},
        what=tuple(name for name in WHAT if name in what or (kept is not None and name in kept.what)),
        runs=kept.runs if kept is not None else {},
        failed=kept.failed if kept is not None else {},
    )


def with_run(record: Ablation, name: str, run: RunRecord) -> Ablation:
    """The record with a run that ended well."""
    failed = {other: why for other, why in record.failed.items() if other != name}
    return replace(record, runs={**record.runs, name: run}, failed=failed)


def with_failure(record: Ablation, name: str, why: str) -> Ablation:
    """The record without a run that diverged, and with the first sentence of why."""
    runs = {other: run for other, run in record.runs.items() if other != name}
    return replace(record, runs=runs, failed={**record.failed, name: why.split(". ")[0].rstrip(".")})


# ---- files -------------------------------------------------------------------------------------------------------
def write_record(record: Ablation, folder: Path) -> Path:
    write_json(folder / NAME, to_plain(record))
    return folder / NAME


def read_record(path: Path) -> Ablation:
    """The record in a file, or in the folder of an ablation; DataError for anything else."""
    file = path / NAME if path.is_dir() else path
    again = "Give the command that wrote it, pdejepa ablate NAME --out DIR, once more: it measures what is missing."
    if not file.exists():
        raise DataError(f"{file} cannot be read (no such file). Give the --out folder of an ablation, or its {NAME}.")
    try:
        plain = read_json(file)
    except ValueError as error:
        raise DataError(f"{file} cannot be read ({error}). {again}") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise DataError(f'{file} is not a record of an ablation: "format" must be "{FORMAT}". Give the {NAME} of one.')
    if plain.get("format_version") != FORMAT_VERSION:
        raise DataError(f"{file} has format {plain.get('format_version')!r}; this version reads {FORMAT_VERSION}.")
    try:
        return parse(Ablation, plain)
    except ValueError as error:
        raise DataError(f"{file} is damaged ({error}). {again}") from None


def earlier_record(folder: Path) -> Ablation | None:
    """What an earlier call left, or None; what cannot be understood is measured again."""
    try:
        return read_record(folder) if (folder / NAME).exists() else None
    except DataError:
        return None
