"""Data for comparisons: splits with their environments, so that every solver finds what it needs.

An environment is one set of parameters; trajectory i of a split belongs to environment i mod n.  The first n
trajectories of a split therefore all have parameters of their own.  A small pool takes fewer environments and several
trajectories of each instead, or solvers that learn from context would have none.
Letters: n trajectories, E environments, K trajectories of each.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pdejepa.baselines.task import Task
from pdejepa.core.errors import DataError
from pdejepa.data.source import Block, Generated, Trajectories
from pdejepa.models.amplitude import Amplitude, amplitude
from pdejepa.systems import System
from pdejepa.training.training_data import TrainingData, normalised

SIBLINGS = 5  # trajectories per environment of a small pool


@dataclass
class Pool:
    """Standardised fields (n,T,C,*grid), parameters (n,P) and environment numbers (n,) of train, valid and others.

    A comparison adds tail_from, the first frame that no solver is given (0: unknown), and floors, the errors per split
    that remain without knowledge of the parameters.
    sizes: what trajectories were divided by, (n,) per split, if they are at unit amplitude.
    """

    data: TrainingData
    environment: dict[str, Tensor]
    siblings: dict[str, Tensor] = field(default_factory=dict)  # (E,K) trajectories of every environment
    tail_from: int = 0
    floors: dict[str, float | None] = field(default_factory=dict)
    sizes: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_splits(self.data.fields)

    @property
    def task(self) -> Task:
        xi = self.data.xi["train"].double()
        spread = xi.std(0, unbiased=False)
        table = self.siblings["train"]
        return Task(
            problem=self.data.problem,
            statistics=self.data.statistics,
            xi_mean=tuple(xi.mean(0).tolist()),
            xi_std=tuple(torch.where(spread > 0, spread, 1.0).tolist()),
            n_environments=len(table),
            n_train=len(xi),
            has_support=table.shape[1] > 1,
            amplitude="unit" if self.sizes else "as_is",
        )

    def support(self, split: str, rows: Tensor, n: int, draws: Tensor) -> Tensor:
        """Numbers (B,n) of other trajectories of the same environments; draws (B,n) in [0,1) choose among them."""
        table = self.siblings[split][self.environment[split][rows]]  # (B,K)
        n_others = table.shape[1] - 1
        if n_others < 1:
            raise DataError(f"{split} has one trajectory per environment: there is no other one to learn from.")
        last = (table == rows[:, None]).to(torch.int8).argsort(dim=1, stable=True)  # oneself goes to the end
        others = table.gather(1, last)[:, :n_others]
        picks = (draws * n_others).long().clamp(max=n_others - 1)  # (B,n)
        return others.gather(1, picks)

    def support_fields(self, split: str, rows: Tensor, n: int, draws: Tensor) -> Tensor:
        """Standardised fields (B,n,T,C,*grid) of those trajectories.

        At unit amplitude they are divided by the sizes of `rows`, so that they have the parameters of `rows`.
        """
        others = self.support(split, rows, n, draws)
        u = self.data.fields[split][others]
        if not self.sizes:
            return u
        mean, std = self.data.statistics.moments(self.data.problem.ndim, u.device)
        factor = self.sizes[split][others] / self.sizes[split][rows][:, None]  # (B,n)
        return ((u * std + mean) * factor.reshape(*factor.shape, *[1] * (u.ndim - 2)).to(u.dtype) - mean) / std


def build_pool(
    system: System, counts: dict[str, int], device: torch.device, seed: int = 0, amplitude: Amplitude = "as_is"
) -> Pool:
    """Generate n trajectories of every split in memory: of train, whose statistics are taken, valid, and any others."""
    check_splits(counts)
    source, found = Generated(system, seed=seed), {}
    for split, n in counts.items():
        parts = [source.block(split, start, start + size, device) for start, size in blocks(system, split, n)]
        found[split] = Block(*map(torch.cat, zip(*parts, strict=True)))
    return pool_of(source, found, amplitude)


def pool_of(source: Trajectories, found: dict[str, Block], to: Amplitude = "as_is") -> Pool:
    """The pool of these trajectories of a source; their fields are standardised in place, rescaled before if asked."""
    fields, xi = ({split: getattr(block, name) for split, block in found.items()} for name in ("fields", "xi"))
    environment, siblings = {}, {}
    for split, block in found.items():
        numbers = block.environment.to(block.fields.device)
        environment[split] = numbers.unique(return_inverse=True)[1]
        siblings[split] = sibling_table(environment[split])
    sizes = {split: amplitude(values) for split, values in fields.items()} if to == "unit" else {}
    data = normalised(source.problem, fields, xi, source.digest(found), amplitude=to, system=source.system)
    return Pool(data, environment, siblings, sizes=sizes)


def check_splits(names: Collection[str]) -> None:
    """Refuse a pool that nobody can be trained or judged on."""
    if not {"train", "valid"} <= set(names):
        raise DataError(f"A pool needs the splits train and valid; got {', '.join(names) or 'none'}.")


def blocks(system: System, split: str, n: int) -> list[tuple[int, int]]:
    """(start, length) of the trajectories of a pool of n: all of 0..n-1, or fewer environments with siblings.

    What is left over when n is shared out evenly goes to the first environments.
    """
    n_environments = system.split(split).n_environments
    if n >= 2 * n_environments or n < 2:
        return [(0, n)]
    per = min(SIBLINGS, n, max(2, system.split(split).n // n_environments))
    n_taken = max(1, n // per)
    return [(k * n_environments, min(n_taken, n - k * n_taken)) for k in range(math.ceil(n / n_taken))]


def sibling_table(environment: Tensor) -> Tensor:
    """(E,K) trajectories of every environment, K the smallest number that one has."""
    order = environment.argsort(stable=True)
    counts = environment.bincount()
    least = int(counts.min())
    starts = counts.cumsum(0) - counts
    return order[starts[:, None] + torch.arange(least, device=environment.device)]
