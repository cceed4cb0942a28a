"""The interface of all solvers.

    solver = Solver(config, task)
    fitted by `fit`: for every stage, loss(stage, batch) on windows of trajectories
    state = solver.adapt(support, xi)              what it knows of an environment: parameters, context, a fitted code
    u = solver.rollout(u_hist, state, n_frames)    (B,H,C,*grid) -> (B,n_frames,C,*grid)

Fields are standardised per channel with the train split; solvers that normalise in their own way do it inside;
`inference` wraps them for users, in physical units.
A solver writes down networks, one loss per stage and one step in time; windows, loops, budgets, checkpoints and
rollout buffers are the runner's (see `fit`).
Letters: B rows, T frames, H observed frames, K support trajectories, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError, did_you_mean
from pdejepa.forecast.interface import Card, State
from pdejepa.training.settings import Budget, StageTraining
from pdejepa.training.stage import Batch

EPS = 1e-8  # keeps relative errors of nothing finite
AT_REST = 0.05  # floor of relative errors that take in frame 0, which may be nothing but zero (u_t of Wave-2D)

# How long a stage of a recipe lasts, by its published number of epochs.  Comparisons overrule it with their own budget.
BUDGETS: dict[str, Callable[[float], Budget]] = {
    "paper": lambda epochs: Budget(epochs=epochs),
    "fast": lambda _: Budget(seconds=180.0),
    "laptop": lambda _: Budget(seconds=600.0),
    "tiny": lambda _: Budget(steps=20),
}


@dataclass(frozen=True)
class Window:
    """What a training sample holds: frames in a row (0: the whole trajectory), and trajectories of its environment.

    lead: it may begin up to this many frames before frame 0, which is repeated there, as in forecasts that start from
    a single frame.
    at_start: share of the samples that begin as early as they may, beside those that do so by chance.
    """

    n_frames: int = 0
    n_support: int = 0
    lead: int = 0
    at_start: float = 0.0


@dataclass(frozen=True)
class StageRecipe:
    """How one stage is trained.

    share: its part of a budget that is given for all stages together.  precision: on a GPU; networks of matrices and
    attention gain from bf16, what transforms to wave numbers does not.
    """

    name: str
    training: StageTraining
    share: float = 1.0
    precision: Literal["fp32", "bf16"] = "fp32"


@dataclass(frozen=True)
class Recipe:
    """The configuration of the networks, and of every stage."""

    model: Any
    stages: tuple[StageRecipe, ...]

    def map_training(self, change: Callable[[StageRecipe], StageTraining]) -> Recipe:
        """The same recipe with `change(stage)` for the training of every stage."""
        stages = tuple(dataclasses.replace(stage, training=change(stage)) for stage in self.stages)
        return dataclasses.replace(self, stages=stages)


class Baseline(nn.Module, ABC):
    """One published solver.  Subclasses set `card`, build their networks and fill in what is abstract here."""

    card: ClassVar[Card]
    TRAINING_ONLY: ClassVar[tuple[str, ...]] = ()  # parts that no forecast looks at, by the beginning of their names
    IDLE: ClassVar[tuple[str, ...]] = ()  # parts of the published network that no forecast and no loss uses
    xi_mean: Tensor
    xi_std: Tensor

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__()
        task.check(self.card)
        self.config, self.task = config, task
        self.card = dataclasses.replace(self.card, history=self.history_of(config))  # type: ignore[misc]  # this one's
        self.register_buffer("xi_mean", torch.tensor(task.xi_mean, dtype=torch.float64), persistent=False)
        self.register_buffer("xi_std", torch.tensor(task.xi_std, dtype=torch.float64), persistent=False)

    def standardised(self, xi: Tensor) -> Tensor:
        """Parameters (B,P) with the mean and spread of the train split taken out, float32."""
        return ((xi.double() - self.xi_mean) / self.xi_std).float()

    @classmethod
    def recipe(cls, name: str, task: Task) -> Recipe:
        """`paper` (the published table), `fast` (for short budgets on one GPU), `laptop` (CPUs) or `tiny` (tests)."""
        check_recipe(name)
        return _for_laptops(cls, task) if name == "laptop" else cls.make_recipe(name, task)

    @classmethod
    @abstractmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        """The recipe of that name, `paper`, `fast` or `tiny`."""

    @classmethod
    def laptop(cls, model: Any, task: Task) -> Any:
        """The network `model` of `fast` with another width and depth, and nothing else changed.

        A forecast shall cost about as many operations as one of PDE-JEPA by its recipe `laptop`, within a factor of
        1.5 on Combined and Gray-Scott.
        """
        return model

    @classmethod
    def history_of(cls, config: Any) -> int:
        """True frames that a forecast of such a network begins with; some take more of them on some systems."""
        return cls.card.history

    # ---- training ----------------------------------------------------------------------------------------------
    def trained(self, stage: str) -> dict[str, nn.Module]:
        """The parts that a stage moves, by name; all others are frozen."""
        return dict(self.named_children())

    def window(self, stage: str, share: float) -> Window:
        """What a sample of that stage holds when the share (0..1) of its steps is done."""
        return Window(self.card.history + 1, lead=self.card.history - 1)

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        """Random tensors of a step (noise, masks); they may depend on the shapes of the batch only."""
        return {}

    @abstractmethod
    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        """`loss` and other scalars of a batch; it must not wait for the device.

        u (B,T,C,*grid) frames of a window, frame (B,) number of its first frame (below 0 if frame 0 is repeated),
        xi (B,P), environment (B,) int64, support (B,K,T,C,*grid) if the window asks for it, share () how much of the
        stage is done, and the `draws`.
        """

    # ---- forecasts ---------------------------------------------------------------------------------------------
    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        """What the solver knows of the environments of B rows, from support (B,K,T,C,*grid) or parameters (B,P)."""
        return {}

    @abstractmethod
    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """The next frames (B,n_frames,C,*grid) after the observed ones (B,H,C,*grid)."""

    def encode(self, u: Tensor) -> Tensor:
        """Representations (B,T',N,D) of trajectories (B,T,C,*grid), for solvers that have any."""
        raise ConfigError(f"{self.card.title} has no representations to return.")


def _for_laptops(solver: type[Baseline], task: Task) -> Recipe:
    """The recipe `fast` with the network for laptops; of its budgets those in seconds are longer."""
    fast = solver.make_recipe("fast", task)

    def change(part: StageRecipe) -> StageTraining:
        old = part.training
        return dataclasses.replace(old, budget=BUDGETS["laptop"](0)) if old.budget.seconds else old

    return dataclasses.replace(fast, model=solver.laptop(fast.model, task)).map_training(change)


def check_recipe(name: str) -> None:
    """Refuse what is not the name of a recipe."""
    if name not in list(BUDGETS):
        hint = did_you_mean(name, BUDGETS) or "."
        raise ConfigError(f"There is no recipe {name!r}{hint} Recipes: {', '.join(BUDGETS)}.")


def check_label(solver: Baseline, name: str) -> None:
    """Refuse the name of one recipe for a network with the sizes of another; changed sizes keep the name they had."""
    check_recipe(name)
    if solver.config != solver.recipe(name, solver.task).model:
        for other in BUDGETS:
            if solver.config == _sizes(solver, other):
                raise ConfigError(f"This {solver.card.title} has the sizes of recipe {other!r}, not of {name!r}.")


def _sizes(solver: Baseline, recipe: str) -> Any:
    """Those of a recipe, or None if it cannot be made for the task."""
    try:
        return solver.recipe(recipe, solver.task).model
    except ConfigError:
        return None


def march(step: Callable[[Tensor], Tensor], u_hist: Tensor, n_history: int, n_frames: int) -> Tensor:
    """Frames (B,n_frames,C,*grid) by repeated `step`: history (B,n_history,C,*grid) -> next frame (B,C,*grid).

    Missing history is filled by repeating the first frame; what is older than `n_history` is dropped.
    """
    history, frames = at_least(n_history, u_hist)[:, -n_history:], []
    for _ in range(n_frames):
        after = step(history)
        frames.append(after)
        history = torch.cat((history[:, 1:], after[:, None]), 1)
    return torch.stack(frames, 1) if frames else u_hist[:, :0]


def at_least(n: int, u: Tensor) -> Tensor:
    """Frames u (B,T,C,*grid) with the first one repeated in front where there are fewer than n."""
    missing = n - u.shape[1]
    return with_lead(u, missing) if missing > 0 else u


def with_lead(u: Tensor, n: int) -> Tensor:
    """Frames u (B,T,C,*grid) behind n repetitions of the first one."""
    return torch.cat((u[:, :1].expand(-1, n, *u.shape[2:]), u), 1)


def mean_frame_error(u_hat: Tensor, u: Tensor, floor: float = 0.0) -> Tensor:
    """The relative L2 error of every row, frame and channel, |u_hat - u| / |u|, then the mean; both (B,T,C,*grid).

    floor: the least |u|, as a part of the spread of standardised fields.
    """
    error, norm = (x.float().flatten(3).norm(dim=-1) for x in (u_hat - u, u))  # (B,T,C)
    return (error / (norm.clamp(min=floor * math.sqrt(math.prod(u.shape[3:]))) + EPS)).mean()
