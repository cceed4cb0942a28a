"""One trajectory to forecast: what is observed of it, its parameters, and the truth if somebody wants to compare.

    test:3            trajectory 3 of the split `test`, made in memory
    DIR:test:3        the same of a data set

Parameters may be changed: the trajectory then is what the solver makes of the same initial state with the changed
ones.  The solver always starts from the state that the random laws draw, because a stored frame need not be a state:
flows are simulated on a finer grid than they are stored on, and one frame of a wave does not show where it goes.
Imported data and other people's have no such state; their truth is what is stored, for unchanged parameters only.
Letters: T frames, C channels, *grid stored grid.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pdejepa.core.errors import DataError, UsageError
from pdejepa.data.well.inspector import refuse_unreadable
from pdejepa.data.well.reader import Dataset
from pdejepa.data.well.stored_problem import name_of
from pdejepa.evaluate import metrics
from pdejepa.forecast.forecaster import Forecast
from pdejepa.systems import System
from pdejepa.systems.inputs import build_xi
from pdejepa.systems.problem import Problem


@dataclass(frozen=True)
class Truth:
    """Frames of the solver (T,C,*grid), how long they took, and how the solve ended."""

    fields: Tensor
    seconds: float
    outcome: str = "ok"
    is_stored: bool = False  # read from a file; no solver was asked


@dataclass(frozen=True)
class Case:
    """A trajectory, known by its initial state (1,C,*solver grid) at t = 0, or by its stored frames (T,C,*grid).

    system: its problem, where no solver is known.
    """

    system: System | Problem
    split: str
    index: int
    xi: Tensor  # (1,P) float64
    state: Tensor | None = None
    stored: Tensor | None = None

    def observed(self, n: int) -> Tensor:
        """The first n frames, (1,n,C,*grid) float32."""
        if self.stored is not None:
            return self.stored[None, :n]
        return self.truth(self._known.times[:n]).fields[None]

    def sibling(self) -> Tensor:
        """Another trajectory (1,1,T,C,*grid) under the same parameters, for solvers that learn from one."""
        if self.state is None:
            raise DataError(
                "This solver needs another trajectory under the same parameters, which cannot be made: the data were "
                "not made by pdejepa. Name a trajectory of the system itself, for example --from test:3."
            )
        system = self._known
        other = self.index + system.split(self.split).n_environments  # the next one of its environment
        state, _ = system.sample(self.split, other, device=self.state.device)
        return dataclasses.replace(self, state=state).truth(system.times).fields[None, None]

    @property
    def _known(self) -> System:
        """The system of a case that has a state."""
        assert isinstance(self.system, System)
        return self.system

    def truth(self, times: Tensor | Sequence[float]) -> Truth:
        """The frames at `times`, from the solver where there is a state to start from."""
        if self.state is None:
            return self._stored(len(times))
        began = time.perf_counter()
        solved = self._known.solve(self.state, self.xi.to(self.state.device), times=times)
        fields = solved.as_subclass(Tensor)[0].float().cpu()
        return Truth(fields, time.perf_counter() - began, solved.outcome[0].label)

    def _stored(self, n: int) -> Truth:
        if self.stored is None or n > len(self.stored):
            raise DataError(
                f"There is no truth to compare {self.split} {self.index} with: the data were not made by pdejepa, so "
                "only its stored frames are known, for unchanged parameters. Leave out --compare."
            )
        return Truth(self.stored[:n], 0.0, is_stored=True)


def solved_from(system: System, observed: Tensor, xi: Tensor | None, times: Tensor) -> Truth:
    """The solver's frames at `times`, started from the one frame (1,1,C,*grid) that a forecast began with."""
    if xi is None or observed.shape[1] != 1 or system.structure.time_order != 1 or observed.shape[2] != system.n_state:
        raise DataError(
            f"There is no truth to compare with: the solver of {system.name} needs a state and its parameters, and "
            "the observed frames are none. Leave out --compare."
        )
    began = time.perf_counter()
    solved = system.solve(observed[:, 0].cpu(), xi[:1], times=times, t0=float(times[0]))
    fields = solved.as_subclass(Tensor)[0].float()
    return Truth(fields, time.perf_counter() - began, solved.outcome[0].label)


@dataclass(frozen=True)
class ForecastErrors:
    """Relative L2 errors of one forecast; NaN where it or the truth is not finite.

    forecast: over all forecast frames      last: in the last one
    repeat: of the last observed frame, repeated
    """

    forecast: float
    last: float
    repeat: float


def forecast_errors(result: Forecast, truth: Truth) -> ForecastErrors:
    """Errors of the first row of a forecast against frames of the solver at the same times."""
    fields, first = truth.fields[None].to(result.fields.device), result.n_observed
    return ForecastErrors(
        forecast=float(metrics.rel_l2(result.fields, fields, first)[0]),
        last=float(metrics.last_frame(result.fields, fields)[0]),
        repeat=float(metrics.rel_l2(metrics.repeat_first(fields, first), fields, first)[0]),
    )


def find_case(
    source: str, system: System | Problem, changes: Mapping[str, float], device: str | torch.device = "cpu"
) -> Case:
    """The case that `source` names, with changed parameters; `system` is that of the model.

    Where no system is known, its problem, and `source` names a folder.
    """
    folder, split, index = parse_source(source)
    if not folder and isinstance(system, Problem):
        raise DataError(f"No system is known for {system.name}: name the data set, as in --from DIR:test:3.")
    if not folder:
        assert isinstance(system, System)
        _check_index(system, split, index)
        state, xi = system.sample(split, index, device=device)
        return Case(system, split, index, changed(system, xi, changes), state)
    with Dataset.open(folder) as data:
        refuse_unreadable(sorted({*data.shards(split), data.shards(data.splits[0])[0]}))
        name = data.system_name if isinstance(system, System) else name_of(data)
        if name != system.name or data.field_names != system.fields:
            raise DataError(f"{folder} holds {data.system_name[:60]!r}; the model forecasts {system.name}.")
        return _from_data(data, system, split, index, changes, device)


def _check_index(system: System, split: str, index: int) -> None:
    """Refuse a trajectory that the benchmark does not have, though the random laws would make one."""
    n = system.split(split).n
    if index >= n:
        raise UsageError(
            f"--from: the split {split} of {system.name} has {n:,} trajectories, 0 to {n - 1:,}; got {index:,}. "
            "Choose one of them; --set changes its parameters."
        )


def changed(system: System | Problem, xi: Tensor, changes: Mapping[str, float]) -> Tensor:
    """Parameters (1,P) with some of them replaced, by name."""
    unknown = [name for name in changes if name not in system.parameter_names]
    if unknown:
        return build_xi(system, dict(changes))  # refuses, with a hint
    if not system.parameters:
        return xi
    named = {name: float(values[0]) for name, values in system.named(xi).items()}
    return build_xi(system, {**named, **changes})


def parse_source(source: str) -> tuple[str, str, int]:
    head, _, number = source.rpartition(":")
    folder, _, split = head.rpartition(":")
    if not split or not number.isdecimal() or len(number) > 9:
        raise UsageError(f"--from must be SPLIT:INDEX or DIR:SPLIT:INDEX, for example test:3; got {source[:200]!r}.")
    return folder, split, int(number)


def _from_data(
    data: Dataset,
    system: System | Problem,
    split: str,
    index: int,
    changes: Mapping[str, float],
    device: str | torch.device,
) -> Case:
    row = data.read(split, index)
    if row.fields.shape[2:] != system.grid:
        raise DataError(f"{data.root} has the grid {row.fields.shape[2:]}, the model {system.grid}.")
    own = torch.tensor([list(row.xi.values())], dtype=torch.float64)  # (1,P)
    xi = changed(system, own, changes)
    fits = len(row.times) == len(system.times) and np.allclose(row.times, np.asarray(system.times), rtol=1e-6)
    is_same = bool(torch.equal(xi, own))
    stored = torch.from_numpy(row.fields) if fits and (is_same or not data.is_solved) else None
    if not data.is_solved:
        if stored is None:
            raise DataError(f"{data.root}: its output times are others than the model's.")
        kept = len(stored) if is_same else system.structure.time_order  # no truth for other parameters
        return Case(system, split, index, xi, stored=stored[:kept])
    made_by, seed = data.build_system(), (data.config or {})["seed"]
    number, attempt = (int(data.column(split, name)[index]) for name in ("trajectory", "attempt"))
    state, _ = made_by.sample(split, number, seed=seed, attempt=attempt, device=device)
    return dataclasses.replace(Case(made_by, split, index, xi, state), stored=stored)
