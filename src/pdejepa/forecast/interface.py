"""What every trained solver, ours or published, says about itself and can be asked.

Letters: B rows, T frames, H observed frames, K support trajectories, C channels, *grid spatial axes, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from pdejepa.core.errors import DataError

State = dict[str, Tensor]  # per row: (B, ...)
Need = Literal["xi", "support", "environment"]
WORDS = {"xi": "the parameters of the equation", "support": "another trajectory of the same environment"}


@dataclass(frozen=True)
class Card:
    """needs: what of a data set the solver cannot do without

      xi       the parameters of the equation              environment  which trajectories share parameters
      support  another trajectory of the same environment

    history: true frames that a forecast begins with
    looks_at: true frames that its history has room for; 0: no more than `history`
    adapts: how it learns about a new environment before it forecasts
    """

    name: str
    title: str
    paper: str
    needs: frozenset[Need] = frozenset()
    history: int = 1
    looks_at: int = 0
    adapts: Literal["none", "encode", "gradient"] = "none"
    stages: tuple[str, ...] = ("fit",)
    is_stochastic: bool = False
    is_forecaster: bool = True  # False: representations only
    has_encoder: bool = False
    package: str = ""  # one that only this solver needs, in an extra of its name
    unrecorded: tuple[str, ...] = ()  # stages whose steps cannot be recorded and replayed on a GPU

    @property
    def reads(self) -> frozenset[str]:
        """What a forecast looks at beside the frames: xi, support, both or nothing."""
        return self.needs & {"xi", "support"} | ({"support"} if self.adapts == "gradient" else set())

    def given(self, what: Literal["xi", "support"], value: Tensor | None) -> Tensor:
        """The value, which a forecast cannot do without, or a refusal."""
        if value is None:
            raise DataError(f"{self.title} needs {WORDS[what]} for a forecast; none was given.")
        return value


@runtime_checkable
class Solver(Protocol):
    """What a comparison asks of a trained solver, published or ours."""

    @property
    def card(self) -> Card: ...

    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State: ...

    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor: ...

    def encode(self, u: Tensor) -> Tensor: ...
