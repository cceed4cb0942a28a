"""What a solver says about itself (its card), and what it is told about the problem (its task)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from pdejepa.core.errors import ConfigError, DataError
from pdejepa.models.condition import Statistics
from pdejepa.systems import System

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
    has_official: bool = False
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


@dataclass(frozen=True)
class Task:
    """A system, and the statistics of a train split.  Solvers see standardised fields and physical parameters."""

    system: System
    statistics: Statistics
    xi_mean: tuple[float, ...]
    xi_std: tuple[float, ...]
    n_environments: int
    has_support: bool  # whether environments hold two trajectories or more

    @property
    def grid(self) -> tuple[int, ...]:
        return self.system.grid

    @property
    def ndim(self) -> int:
        return self.system.ndim

    @property
    def n_channels(self) -> int:
        return len(self.system.fields)

    @property
    def n_frames(self) -> int:
        return len(self.system.times)

    @property
    def n_parameters(self) -> int:
        return len(self.system.parameters)

    @property
    def is_periodic(self) -> bool:
        return all(self.system.structure.periodic_axes)

    @property
    def padding(self) -> Literal["circular", "zeros", "reflect"]:
        return self.system.structure.padding

    def check(self, card: Card) -> None:
        """Refuse a solver that needs what the data do not have."""
        if "support" in card.needs and not self.has_support:
            raise ConfigError(
                f"{card.title} needs another trajectory of the same environment as context, but every environment of "
                f"these {self.system.name} data holds one only. Use more trajectories per environment."
            )
        if "environment" in card.needs and not self.has_support:
            raise ConfigError(
                f"{card.title} learns one code per environment from several trajectories, but every environment of "
                f"these {self.system.name} data holds one only. Use more trajectories per environment."
            )
