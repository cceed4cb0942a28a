"""Our own solver on a coarse grid: what one has before anything is learnt.

    u_t+1 .. u_T = lift( solve( restrict(u_t), xi ) )

The frame is brought to a coarser grid, the system's own solver goes on from there, with larger steps where it allows
them, and its frames are brought back, by Fourier modes where the domain is periodic (see `systems.coarser`).  Nothing
is fitted but the grid: the finest one, with the smallest step, whose forecasts cost no more than `ms` per trajectory
in a batch of 32 on the machine that "fits" it.  `n_points` and `step` name a setting instead.

It needs the system, with its solver, when it is used, and stored frames that are whole states on the solver's own grid.
Letters: B rows, T frames, C channels, P parameters.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pdejepa.baselines.baseline import Recipe
from pdejepa.baselines.closed_form import ClosedForm, at_once
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError
from pdejepa.forecast.header import system_of
from pdejepa.forecast.interface import Card, State
from pdejepa.systems import System
from pdejepa.systems.coarser import Setting, grid_of, setting, settings
from pdejepa.training.stage import Say
from pdejepa.training.training_data import TrainingData

BATCH = 32
FORECAST_MS = 10.0  # about what a forecast costs on one thread of those that a laptop can train


@dataclass(frozen=True)
class CoarseConfig:
    """n_points: per axis; 0: the finest that costs at most `ms` per trajectory.  step: factor on the time step."""

    n_points: int = 0
    step: float = 1.0
    ms: float = FORECAST_MS
    dtype: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        if self.n_points < 0 or not self.step > 0 or not self.ms > 0:
            got = f"n_points={self.n_points}, step={self.step}, ms={self.ms}"
            raise ConfigError(f"expected n_points of 0 or more, step and ms above 0; got {got}.")


class CoarseSolver(ClosedForm):
    card = Card(
        name="coarse_solver",
        title="Own solver, coarse grid",
        paper="the solver that makes the data, on fewer points",
        needs=frozenset({"xi"}),
        is_closed_form=True,
    )
    n_points: Tensor  # () int64; 0: not chosen yet
    step: Tensor  # () float64

    def __init__(self, config: CoarseConfig, task: Task) -> None:
        super().__init__(config, task)
        self.register_buffer("n_points", torch.tensor(config.n_points))
        self.register_buffer("step", torch.tensor(config.step, dtype=torch.float64))

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        return at_once(CoarseConfig(n_points=task.grid[0] // 2) if name == "tiny" else CoarseConfig())

    @property
    def system(self) -> System:
        """With its solver; refused where a stored frame is not its state."""
        system = system_of(self.task.problem)
        if not system.stores_states:
            raise ConfigError(
                f"{self.card.title} goes on from a stored frame, but a frame of {system.name} is not the whole state "
                "of its solver, on its own grid. `pdejepa breakeven` compares with that solver from its own start."
            )
        return system

    @property
    def chosen(self) -> Setting:
        n, step = int(self.n_points), float(self.step)
        return setting(self.system, n or grid_of(self.system), step, getattr(torch, self.config.dtype))

    # ---- fitting -------------------------------------------------------------------------------------------------
    def solve_for(self, data: TrainingData, say: Say) -> None:
        """Choose the setting, unless the configuration names one."""
        system = self.system
        if self.config.n_points:
            say(f"{self.card.title}: {self.chosen.label}")
            return
        rows = torch.arange(min(BATCH, data.n("valid")), device=data.xi["valid"].device)
        mean, std = data.statistics.moments(data.problem.ndim, rows.device)
        u, xi = data.fields["valid"][rows][:, :1] * std + mean, data.xi["valid"][rows]
        dtype = getattr(torch, self.config.dtype)
        for one in (found for found in settings(system) if found.dtype == dtype):
            ms = self._cost(one, u, xi)
            self.n_points.fill_(one.n)
            self.step.fill_(one.step or 1.0)  # closed forms have none
            say(f"{self.card.title}: {one.label}: {ms:.3g} ms")
            if ms <= self.config.ms:
                break

    def _cost(self, one: Setting, u: Tensor, xi: Tensor) -> float:
        """Milliseconds per trajectory, of the second call: what is made once is there by then."""
        n_frames = self.task.n_frames - 1
        for _ in range(2):
            begun = time.perf_counter()
            self._frames(one, u, xi, n_frames)
            seconds = time.perf_counter() - begun
        return 1e3 * seconds / len(u)

    # ---- forecasts -----------------------------------------------------------------------------------------------
    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        if n_frames == 0:
            return u_hist[:, :0]
        mean, std = self.task.statistics.moments(self.task.ndim, u_hist.device)
        return ((self._frames(self.chosen, u_hist * std + mean, state["xi"], n_frames) - mean) / std).float()

    def _frames(self, one: Setting, u: Tensor, xi: Tensor, n: int) -> Tensor:
        """The next n frames after u (B,H,C,*grid), physical units."""
        problem, H = self.task.problem, u.shape[1]
        times = problem.times[0] + problem.frame_gap * torch.arange(H - 1, H + n, dtype=torch.float64)
        return one.run(one.start(u[:, -1]), xi, times[1:], float(times[0]))


SOLVER = CoarseSolver
