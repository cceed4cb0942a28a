"""Which trajectory goes into which split.

Environments are sets of equal parameters.  Splits are cut by environment, so that no parameters of `test` were trained
on; where there are too few environments, or none, by trajectory, and that is said.  The outer part of a parameter
becomes `ood`, on purpose.

    by condition     nu<1e-3 or any other of the conditions given
    by itself        the upper tenth of the values of the parameter that has most of them

Rows of a split are ordered so that its first ones have different parameters.  Letters: n trajectories, P parameters.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdejepa.core.errors import DataError, UsageError, did_you_mean
from pdejepa.core.seeds import derive_seed
from pdejepa.data.importing.import_request import NONE

SHARE = 0.1  # of the environments, in valid and in test each
OUTER = 0.1  # of the values of a parameter
ENOUGH = 10  # environments from which on splits are cut by environment; values from which on an outer part is cut off
CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|<|>|=)\s*([-+.\deE]+)\s*")
COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}


@dataclass(frozen=True)
class Partition:
    """Rows of the source in each split, the environment of every row, and how it was done in words."""

    rows: dict[str, tuple[int, ...]]
    environment: np.ndarray  # (n,) int64
    how: str
    ood: str

    @property
    def counts(self) -> dict[str, int]:
        return {split: len(rows) for split, rows in self.rows.items()}


def partition(
    xi: np.ndarray, names: Sequence[str], ood: Sequence[str] | None, seed: int, left_out: Sequence[int] = ()
) -> Partition:
    """Cut the trajectories with parameters xi (n,P) into train, valid, test and ood."""
    environment = environments(xi)
    kept = np.setdiff1d(np.arange(len(xi)), np.asarray(left_out, dtype=np.int64))
    is_outside, rule = _outside(xi, names, ood, kept)
    inside = kept[~is_outside[kept]]
    n_environments = len(np.unique(environment[inside]))
    if n_environments >= ENOUGH:
        groups = environment
        how = (
            "by trajectory, as each has parameters of its own"
            if n_environments == len(inside)
            else f"by parameters: no environment of {n_environments} is in two of train, valid and test"
        )
    else:
        groups = np.arange(len(xi))
        many = "one set of parameters" if n_environments == 1 else f"{n_environments} sets of parameters"
        how = f"by trajectory: there {'is' if n_environments == 1 else 'are'} only {many}, which test shares with train"
    rows = {split: _in_turns(chosen, environment, seed) for split, chosen in _cut(inside, groups, seed).items()}
    outside = kept[is_outside[kept]]
    if len(outside):
        rows["ood"] = _in_turns(outside, environment, seed)
    return Partition(rows, environment, how, rule)


def environments(xi: np.ndarray) -> np.ndarray:
    """Numbers (n,) of environments in the order of their first row; without parameters all are one."""
    if xi.shape[1] == 0:
        return np.zeros(len(xi), dtype=np.int64)
    _, first, inverse = np.unique(xi, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)]


def _cut(inside: np.ndarray, groups: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """A tenth of the groups each for valid and test, drawn by the seed, the rest for train."""
    found = np.unique(groups[inside])
    if len(found) < 3:
        raise DataError(
            f"{len(inside)} trajectories are left inside; train, valid and test need at least one each. "
            "Choose another --ood, or give more data."
        )
    order = _shuffled(found, seed, "splits")
    n = max(1, round(SHARE * len(order)))
    parts = {"train": order[2 * n :], "valid": order[:n], "test": order[n : 2 * n]}
    return {split: inside[np.isin(groups[inside], own)] for split, own in parts.items()}


def _in_turns(rows: np.ndarray, environment: np.ndarray, seed: int) -> tuple[int, ...]:
    """Environments take turns, in an order drawn by the seed."""
    place = {int(e): i for i, e in enumerate(_shuffled(np.unique(environment[rows]), seed, "order"))}
    met: dict[int, int] = {}
    keys = []
    for row in _shuffled(rows, seed, "rows"):
        e = int(environment[row])
        met[e] = met.get(e, 0) + 1
        keys.append((met[e], place[e], int(row)))
    return tuple(row for _, _, row in sorted(keys))


def _shuffled(numbers: np.ndarray, seed: int, purpose: str) -> list[int]:
    """Whole numbers in an order that depends on the seed and on nothing else."""
    return sorted(map(int, numbers), key=lambda number: derive_seed("import", purpose, seed, number))


def _outside(
    xi: np.ndarray, names: Sequence[str], ood: Sequence[str] | None, kept: np.ndarray
) -> tuple[np.ndarray, str]:
    """Which rows (n,) are out of distribution, and the rule in words."""
    if ood is not None:
        return _by_condition(xi, names, ood, kept)
    counts = [len(np.unique(xi[kept, j])) for j in range(len(names))]
    if not counts or max(counts) < ENOUGH:
        return np.zeros(len(xi), dtype=bool), f"none: no parameter has {ENOUGH} values to cut an outer part off"
    j = int(np.argmax(counts))
    values = np.unique(xi[kept, j])
    border = values[len(values) - max(1, round(OUTER * len(values))) - 1]
    rule = f"{names[j]} > {border:g}, the upper tenth of its values"
    return xi[:, j] > border, rule


def _by_condition(
    xi: np.ndarray, names: Sequence[str], ood: Sequence[str], kept: np.ndarray
) -> tuple[np.ndarray, str]:
    if tuple(ood) == (NONE,):
        return np.zeros(len(xi), dtype=bool), "none, as asked for"
    found = np.zeros(len(xi), dtype=bool)
    for text in ood:
        match = CONDITION.fullmatch(text)
        try:
            bound = float(match[3]) if match else float("nan")
        except ValueError:
            match = None
        if match is None:
            raise UsageError(f'--ood takes conditions such as "nu<1e-3", or none; got {text[:60]!r}.')
        if match[1] not in names:
            hint = did_you_mean(match[1], names) or f"; parameters: {', '.join(names) or 'none'}"
            raise UsageError(f"--ood: there is no parameter {match[1]!r}{hint}.")
        found |= COMPARE[match[2]](xi[:, names.index(match[1])], bound)
    if not found[kept].any():
        raise UsageError(f"--ood: no trajectory has {' or '.join(ood)}.")
    return found, " or ".join(text.strip() for text in ood)
