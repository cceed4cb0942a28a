"""What a solver says about itself (its card), and what it is told about the problem (its task)."""

from __future__ import annotations

from dataclasses import dataclass

from pdejepa.core.errors import ConfigError
from pdejepa.forecast.interface import Card
from pdejepa.models.amplitude import Amplitude, check_scaling
from pdejepa.models.condition import Statistics
from pdejepa.systems.problem import Padding, Problem


@dataclass(frozen=True)
class Task:
    """A problem, and the statistics of a train split.  Solvers see standardised fields and physical parameters.

    amplitude: `unit` if trajectories are rescaled to rms 1, and their parameters with them (`models.amplitude`)
    """

    problem: Problem
    statistics: Statistics
    xi_mean: tuple[float, ...]
    xi_std: tuple[float, ...]
    n_environments: int
    n_train: int  # trajectories of the train split
    has_support: bool  # whether environments hold two trajectories or more
    amplitude: Amplitude = "as_is"

    @property
    def grid(self) -> tuple[int, ...]:
        return self.problem.grid

    @property
    def ndim(self) -> int:
        return self.problem.ndim

    @property
    def n_channels(self) -> int:
        return len(self.problem.fields)

    @property
    def n_frames(self) -> int:
        return len(self.problem.times)

    @property
    def n_parameters(self) -> int:
        return len(self.problem.parameters)

    @property
    def is_periodic(self) -> bool:
        return all(self.problem.periodic_axes)

    @property
    def padding(self) -> Padding:
        return self.problem.padding

    def check(self, card: Card) -> None:
        """Refuse a solver that needs what the data do not have."""
        if "support" in card.needs and not self.has_support:
            raise ConfigError(
                f"{card.title} needs another trajectory of the same environment as context, but every environment of "
                f"these {self.problem.name} data holds one only. Use more trajectories per environment."
            )
        if "environment" in card.needs and self.amplitude == "unit" and any(check_scaling(self.problem).values()):
            raise ConfigError(
                f"{card.title} learns one code per environment, but at unit amplitude trajectories of one environment "
                f"of {self.problem.name} have parameters of their own. Use --amplitude as_is for it."
            )
        if "environment" in card.needs and not self.has_support:
            raise ConfigError(
                f"{card.title} learns one code per environment from several trajectories, but every environment of "
                f"these {self.problem.name} data holds one only. Use more trajectories per environment."
            )
