"""Our records beside the published numbers: one row per system and kind of model, and which targets are met.

A kind is (variant, polished or not, observed frames, data, recipe); records of one kind that differ in their seed share
a row, with the mean of their errors and the smallest and largest.  A target is a published error of PDE-JEPA, in
distribution (split `test`) or out of it (split `ood`); it is met if the best of our rows is not above it.  Rows of a
system with other switches, a coarser grid for example, stand beside no published number.

    ratio = ours / published            judged on the metric that `published` names, mean over seeds, nothing rounded
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from pdejepa.evaluate.evaluations import Evaluation
from pdejepa.evaluate.published import POOLS, PUBLISHED, ROWS, Published, metric_of
from pdejepa.systems import NAMES, System, get

TEST, OOD = "test", "ood"
MAX_DEVICE = 60  # letters of a device's name that are shown


@dataclass(frozen=True)
class Spread:
    """Mean, smallest and largest over n seeds."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Row:
    """The records of one kind; none for a system without any."""

    system: System
    records: tuple[Evaluation, ...] = ()

    @property
    def published(self) -> Published | None:
        """What the paper prints for these data; nothing of coarser ones."""
        if self.records and self.records[0].switches:
            return None
        return PUBLISHED.get(self.system.name)

    @property
    def kind(self) -> str:
        """`polished`, `four stages, geo`, ...: how this row differs from others of its system."""
        if not self.records:
            return "no record"
        one = self.records[0]
        parts = [
            "polished" if one.polish else "four stages",
            one.variant if one.variant != "physics" else "",
            _observed(one.observed_frames) if self.system.structure.time_order == 2 else "",
            f"on {one.source}" if one.source else "",
            " and ".join(f"{name} {_short(value)}" for name, value in one.switches.items()),
        ]
        return ", ".join(part for part in parts if part)

    @property
    def recipe(self) -> str:
        return self.records[0].recipe if self.records else ""

    @property
    def what(self) -> str:
        """The kind, and what one has to know of its records: `polished, 40 of 120 test trajectories, 3 seeds`."""
        n_seeds, n_runs = len(self.seeds), len(self.records)
        parts = [
            self.kind,
            self.shortfall,
            f"{self.n_unstable} unstable" if self.n_unstable else "",
            f"{n_seeds} seeds" if n_seeds == n_runs > 1 else "",
            f"{n_runs} runs of {n_seeds} seed{'s' * (n_seeds > 1)}" if n_seeds < n_runs else "",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({record.seed for record in self.records}))

    @property
    def splits(self) -> tuple[str, ...]:
        """`test` and the out-of-distribution splits that any record tells of, in the system's order."""
        known = [split.name for split in self.system.splits if split.name == TEST or split.is_ood]
        return tuple(name for name in known if any(name in record.errors for record in self.records))

    @property
    def outside(self) -> tuple[str, ...]:
        """The splits out of distribution that any record tells of, and pools of them that a published number takes."""
        pools = [name for name in (self.published.ood if self.published else {}) if name in POOLS]
        return tuple(split for split in (*self.splits, *pools) if split != TEST)

    def error(self, split: str) -> Spread | None:
        """The error by which the system is compared, over seeds; None if no record tells it.  `split` may be a pool."""
        return _spread(_pooled(record, POOLS.get(split, (split,))) for record in self.records)

    def scatter(self, split: str) -> float | None:
        """Standard error of the mean error over the environments of a split, as a bootstrap over them would find it.

        Trajectories of an environment share parameters and thus errors, so environments are counted, not trajectories.
        None where it is not known: records tell single trajectories by rel_l2 only.
        """
        known = [r.errors[split].trajectories for r in self.records if split in r.errors]
        if metric_of(self.system.name) != "rel_l2" or not known or not all(known) or len(set(map(len, known))) > 1:
            return None
        if any(error is None for one in known for error in one):
            return None
        errors = torch.tensor(known, dtype=torch.float64).mean(0)  # (n,) over seeds
        numbers = self.system.environment_of(split, range(len(errors)))
        means = torch.stack([errors[numbers == number].mean() for number in numbers.unique()])
        return float(means.std(correction=0) / len(means) ** 0.5) if len(means) > 1 else None

    def ratio(self, split: str) -> float | None:
        """Ours / published; None where either is missing."""
        ours, published = self.error(split), target_of(self.published, split)
        return ours.mean / published if ours is not None and published is not None else None

    def is_ours(self, split: str) -> bool:
        """Whether a split, or one of a pool, is not part of the paper's data."""
        return any(self.system.split(name).is_ours for name in POOLS.get(split, (split,)))

    @property
    def n_unstable(self) -> int:
        found = [r.errors[split] for r in self.records for split in self.splits if split in r.errors]
        return sum(errors.n_unstable or 0 for errors in found)

    @property
    def shortfall(self) -> str:
        """`40 of 120 trajectories` if a split was not judged to its end."""
        for split in self.splits:
            n, whole = min(r.errors[split].n for r in self.records if split in r.errors), self.system.split(split).n
            if n < whole:
                return f"{n:,} of {whole:,} {split} trajectories"
        return ""

    @property
    def seconds(self) -> Spread | None:
        return _spread(record.seconds.get("total") for record in self.records)

    @property
    def flops(self) -> Spread | None:
        """Operations of the whole training, where they were counted."""
        return _spread(sum(value or 0.0 for value in record.flops.values()) or None for record in self.records)

    @property
    def weights_bytes(self) -> int | None:
        return max((r.weights_bytes for r in self.records), default=0) or None  # 0: not known

    @property
    def device(self) -> str:
        named = (record.machine or record.device for record in self.records)
        return ", ".join(dict.fromkeys(name[:MAX_DEVICE] for name in named if name))


@dataclass(frozen=True)
class Target:
    """A published error, and the best of our rows if one tells its split."""

    published: Published
    split: str
    row: Row | None
    has_records: bool

    @property
    def value(self) -> float:
        value = target_of(self.published, self.split)
        assert value is not None
        return value

    @property
    def ratio(self) -> float | None:
        return None if self.row is None else self.row.ratio(self.split)

    @property
    def is_met(self) -> bool:
        return self.ratio is not None and self.ratio <= 1.0


def target_of(published: Published | None, split: str) -> float | None:
    """What the paper prints for a split or a pool of splits, if it does."""
    return None if published is None else {TEST: published.id, **published.ood}.get(split)


def make_rows(records: Iterable[Evaluation], recipes: Sequence[str]) -> list[Row]:
    """The rows of some recipes in the order of the systems; a system without records has one that says so."""
    kinds: dict[tuple[object, ...], list[Evaluation]] = {}
    for record in records:
        if record.recipe in recipes:
            kinds.setdefault(record.kind, []).append(record)
    rows = []
    for name in NAMES:
        own = [kinds[kind] for kind in sorted(kinds) if kind[0] == name]
        own.sort(key=lambda of: (recipes.index(of[0].recipe), of[0].variant != "physics", of[0].kind))
        rows += [Row(get(name), tuple(members)) for members in own] or [Row(get(name))]
    return rows


def make_targets(rows: Sequence[Row]) -> list[Target]:
    """Every published error with the row that is judged by it."""
    targets = []
    for published in ROWS:
        own = [row for row in rows if row.system.name == published.system and row.records and row.published]
        for split in (TEST, *published.ood):
            targets.append(Target(published, split, _best(own, split), bool(own)))
    return targets


def _best(rows: Sequence[Row], split: str) -> Row | None:
    """The row of the smallest error; one over all trajectories goes before one over some, other data do not count."""
    fit = [(bool(row.shortfall), found.mean, row) for row in rows if (found := row.error(split)) and not _source(row)]
    return min(fit, key=lambda one: one[:2])[2] if fit else None


def _source(row: Row) -> str:
    return row.records[0].source


def row_to_plain(row: Row) -> dict[str, Any]:
    """A row as JSON has it; what is not known is null."""
    one, published = row.records[0] if row.records else None, row.published
    test = row.error(TEST)
    return {
        "system": row.system.name,
        "what": row.what,
        "recipe": one.recipe if one else None,
        "variant": one.variant if one else None,
        "polish": one.polish if one else None,
        "observed_frames": one.observed_frames if one else None,
        "data": (one.source or "generated") if one else None,
        "seeds": list(row.seeds),
        "records": [record.file for record in row.records],
        "metric": metric_of(row.system.name),
        "test": asdict(test) if test else None,
        "published": target_of(published, TEST),
        "ratio": row.ratio(TEST),
        "ood": {
            split: {**asdict(found), "is_ours": row.is_ours(split), "published": target_of(published, split)}
            for split in row.outside
            if (found := row.error(split))
        },
        "published_ood": target_of(published, OOD),
        "ood_ratio": row.ratio(OOD),
        "other": {"name": published.other_name, "error": published.other} if published else None,
        "seconds": row.seconds.mean if row.seconds else None,
        "flops": row.flops.mean if row.flops else None,
        "weights_bytes": row.weights_bytes,
        "device": row.device,
        "n_unstable": row.n_unstable,
    }


def _pooled(record: Evaluation, splits: Sequence[str]) -> float | None:
    """The error over the trajectories of some splits together; None if one of them is not told."""
    if any(split not in record.errors for split in splits):
        return None
    metric, parts = metric_of(record.system), [record.errors[split] for split in splits]
    errors = [getattr(part, metric) for part in parts]
    if any(error is None for error in errors):
        return None
    return float(sum(error * part.n for error, part in zip(errors, parts, strict=True)) / sum(p.n for p in parts))


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(sum(known) / len(known), min(known), max(known), len(known)) if known else None


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _observed(n: int) -> str:
    return f"{n} frame{'s' * (n > 1)} observed"
