"""What the tests of training share: a stage that costs nothing, ways to disturb it, and ways to compare."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # PyTorch loads it with the first optimiser; here, so that children find it loaded
from torch import Tensor, nn

from pdejepa.core.device import rank_and_world
from pdejepa.core.errors import PdejepaError
from pdejepa.training.distributed import end_group, n_ranks, rank_slice, start_group
from pdejepa.training.loop import run_stage
from pdejepa.training.settings import Budget, OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch, Context, Stage

N_SAMPLES = 40
SETTINGS = StageTraining(
    budget=Budget(steps=24),
    batch=8,
    optimiser=OptimiserConfig(lr=0.02),
    schedule=ScheduleConfig(kind="wsd", warmup=0.1, decay=0.5),
    log_every=2,
    n_scores=4,
    save_every=5,
)


class Toy(Stage):
    """Regression with a small network on frozen features, and a moving average that the loss looks at too.

    `disturb` maps a step to something that happens in the middle of it.
    """

    name = "toy"

    def __init__(
        self,
        settings: StageTraining = SETTINGS,
        device: str = "cpu",
        disturb: dict[int, Callable[[Toy], object]] | None = None,
    ) -> None:
        super().__init__(settings, N_SAMPLES)
        draws = torch.Generator().manual_seed(7)
        self.rank, self.world = rank_and_world() if n_ranks() > 1 else (0, 1)
        self.disturb = disturb or {}
        self.online = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1))
        self.base = nn.Linear(3, 3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(0.5 * torch.randn(p.shape, generator=draws))
        self.target = copy.deepcopy(self.online)
        self.register_buffer("x", torch.randn((N_SAMPLES, 3), generator=draws), persistent=False)
        self.register_buffer("y", self.x.sin().sum(1, keepdim=True), persistent=False)
        self.bad = 1.0  # a factor of the loss, for tests that spoil it
        self.to(device)

    def trained(self) -> dict[str, nn.Module]:
        return {"online": self.online}

    def saved(self) -> dict[str, nn.Module]:
        return {"online": self.online, "target": self.target}

    def frozen(self) -> dict[str, nn.Module]:
        return {"base": self.base}

    def trajectories(self, step: int) -> list[int]:
        draws = torch.Generator().manual_seed(step)
        return torch.randperm(N_SAMPLES, generator=draws)[: self.settings.batch].tolist()

    def batch(self, step: int, n_steps: int) -> Batch:
        if step in self.disturb:
            self.disturb[step](self)
        rows = torch.tensor(self.trajectories(step))[rank_slice(self.settings.batch, self.rank, self.world)]
        rows = rows.to(self.x.device)
        return {"x": self.x[rows], "y": self.y[rows], "bad": torch.full((), self.bad, device=self.x.device)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        found = self.online(self.base(batch["x"]))
        with torch.no_grad():
            slow = self.target(self.base(batch["x"]))
        error = (found.float() - batch["y"]).square().mean()
        pull = (found.float() - slow.float()).square().mean()
        return {"loss": batch["bad"] * (error + 0.1 * pull), "error": error.detach()}

    def after_update(self, step: int, n_steps: int) -> None:
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.lerp_(fast, 0.1)

    def score(self) -> dict[str, float]:
        return {"score": float((self.target(self.base(self.x)).float() - self.y).square().mean())}


def settings(**changes: Any) -> StageTraining:
    return replace(SETTINGS, **changes)


def train(folder: Path, stage: Toy | None = None, said: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    """Run a toy stage in this process, quietly."""
    stage = stage or Toy()
    context = Context(
        **{
            "device": stage.x.device,
            "rank": stage.rank,
            "world": stage.world,
            "say": (said if said is not None else []).append,
            "shown": "nothing",
            "upstream": {"data": "d" * 64},
            **changes,
        }
    )
    return run_stage(stage, folder, context)


def result(folder: Path) -> dict[str, bytes]:
    """Everything that must be equal for equal runs."""
    names = ("metrics.jsonl", "final/weights.safetensors", "plan.json", "best/weights.safetensors", "final/state.json")
    return {name: (folder / name).read_bytes() for name in names}


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if ".tmp-" in path.name]


# ---- other processes ---------------------------------------------------------------------------------------------
# The server has PyTorch loaded and has never used it, so its children start at once and may use it freely.
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload(["tests.faults.training"])


def in_child(target: Callable[..., None], *arguments: Any) -> tuple[int, str]:
    """Run a function in another process; its exit code, negative for a signal, and the sentence it failed with."""
    return in_ranks(1, target, *arguments)[0]


def in_ranks(n: int, target: Callable[..., None], *arguments: Any) -> list[tuple[int, str]]:
    """The same in n processes that find each other as under torchrun."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as told:
        files = [Path(told) / str(rank) for rank in range(n)]
        processes = [
            CHILDREN.Process(target=_child, args=(rank, n, port, str(file), target, arguments))
            for rank, file in enumerate(files)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        texts = [file.read_text() if file.exists() else "" for file in files]
    return [(process.exitcode or 0, text) for process, text in zip(processes, texts, strict=True)]


def _child(rank: int, world: int, port: int, told: str, target: Callable[..., None], arguments: Any) -> None:
    """Our failures become their exit codes, as in the command line."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    try:
        start_group(torch.device("cpu"), timeout_s=60)
        target(*arguments)
    except PdejepaError as error:
        Path(told).write_text(str(error))
        sys.exit(error.exit_code)
    finally:
        end_group()


def kill_minus_nine(_: object = None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train_with(folder: str, step: int, action: Callable[[Toy], object], **changes: Any) -> None:
    """Train a toy stage; in the middle of one step (from 0) something happens."""
    train(Path(folder), Toy(settings(**changes), disturb={step: action}))


def train_and_kill_at_rename(folder: str, number: int, configured: StageTraining) -> None:
    """Kill just before rename `number` (from 0).  Every file and every folder is renamed into place when it is
    complete, so these are all the points at which what counts on the disk changes."""
    n_renames = 0

    def counted(rename: Callable[..., None]) -> Callable[..., None]:
        def call(source: Any, target: Any) -> None:
            nonlocal n_renames
            if str(target).startswith(folder):
                if n_renames == number:
                    kill_minus_nine()
                n_renames += 1
            rename(source, target)

        return call

    os.rename, os.replace = counted(os.rename), counted(os.replace)  # type: ignore[assignment]
    train(Path(folder), Toy(configured))
