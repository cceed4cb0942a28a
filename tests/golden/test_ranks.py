"""Two ranks, each with half of every batch, follow the losses of one rank, in every stage of the method.

The whole command under torchrun is tested in tests/faults (slow).  Here the stages run through the loop alone, which
takes seconds, and the comparison itself is tested: ranks that keep their gradients to themselves must not pass it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from pdejepa.core.device import rank_and_world
from pdejepa.method.chain import BUILD
from pdejepa.method.load_data import load_data
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.distributed import agree
from pdejepa.training.loop import run_stage
from pdejepa.training.stage import Context
from tests.faults.training import in_ranks
from tests.unit.method.small_run import CPU, small_config

N_STEPS = 5
SAME = 1e-5  # relative; 3e-7 was found, and at least 2e-4 where ranks keep their gradients to themselves
SETTINGS = f"{{budget: {{steps: {N_STEPS}}}, log_every: 1, n_scores: 1, save_every: 100}}"
WORDS = tuple(f"{name}.training={SETTINGS}" for name in BUILD)
Losses = dict[str, list[float]]


def train_all(folder: str, averages: bool) -> None:
    """Every stage on a fresh model, in this process or in one of several; without averages ranks go their own ways."""
    if not averages:
        keep_gradients()
    config, (rank, world) = small_config("advection", *WORDS), rank_and_world()
    data = load_data(config, CPU, show=False)
    for name, kind in BUILD.items():
        torch.manual_seed(0)
        model = Surrogate(data.problem, config.model, config.variant, data.statistics, config.history)
        stage = kind(config, data, model, Context(CPU, rank=rank, world=world))
        run_stage(stage, Path(folder) / name, Context(rank=rank, world=world, shown="nothing"))
        agree([0])  # nobody runs ahead of what the first rank writes


def keep_gradients() -> None:
    """Take the communication out of the wrapper that averages gradients."""
    plain = DistributedDataParallel.forward

    def forward(self: DistributedDataParallel, *inputs: Any, **options: Any) -> Any:
        with self.no_sync():
            return plain(self, *inputs, **options)

    DistributedDataParallel.forward = forward  # type: ignore[method-assign]


def losses(folder: Path, n_ranks: int, averages: bool = True) -> Losses:
    """Of every step of every stage, trained in processes of their own."""
    assert in_ranks(n_ranks, train_all, str(folder), averages) == [(0, "")] * n_ranks
    found = {}
    for name in BUILD:
        lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        found[name] = [line["train"]["loss"] for line in lines if "train" in line]
        assert len(found[name]) == N_STEPS
    return found


def followed(one: Losses, two: Losses, steps: slice) -> list[str]:
    """The stages whose losses are the same in these steps."""
    return [name for name in BUILD if two[name][steps] == pytest.approx(one[name][steps], rel=SAME)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Losses:
    return losses(tmp_path_factory.mktemp("alone"), 1)


def test_two_ranks_follow_the_losses_of_one(alone: Losses, tmp_path: Path) -> None:
    assert followed(alone, losses(tmp_path, 2), slice(None)) == list(BUILD)


def test_ranks_that_keep_their_gradients_are_noticed(alone: Losses, tmp_path: Path) -> None:
    """In every stage, from the second step on: the first loss is that of the same weights, and averaged still."""
    found = losses(tmp_path, 2, averages=False)
    assert followed(alone, found, slice(1)) == list(BUILD)
    assert followed(alone, found, slice(1, None)) == []
