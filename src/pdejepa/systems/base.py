"""The base class of the nine systems: sampling, solving and generating, written once.

A system fills these blanks: declarations (`name`, `fields`, `parameters`, `splits`, `structure`, `times`),
`environment` and `initial` (the random laws), `_solve` (closed form, or a `SteppedSystem`'s stepper),
`shared`, `operators` and, where there is one, `forcing` (the right-hand side), `invariants` and `reference`
(how to check it).

Letters: B rows, T frames, C channels, P parameters, M terms, *grid spatial axes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from pdejepa.core.arrays import as_count, as_rows, as_tensor
from pdejepa.core.device import few_threads, map_chunks, pick_device
from pdejepa.core.errors import ConfigError, DataError, ParameterError, did_you_mean
from pdejepa.core.seeds import Draws
from pdejepa.solve.march import March, Stepper
from pdejepa.solve.outcome import Fields, Outcome, as_fields
from pdejepa.systems.benchmarks import extra_splits_of, splits_of
from pdejepa.systems.inputs import build_xi, check_xi, joined, with_channel
from pdejepa.systems.problem import Axis, Boundary, Named, Padding, Parameter, Problem, Range, Structure, Uniform
from pdejepa.systems.structure import Check, Coefficients, Reference, Split, fit_coefficients

Index = int | Sequence[int] | range | Tensor
MAX_ATTEMPTS = 5


@dataclass(frozen=True)
class Generated:
    """Trajectories in memory: what a data file holds, without the file."""

    fields: Tensor  # (n,T,C,*grid) float32
    xi: Tensor  # (n,P) float64
    times: Tensor  # (T,) float64
    environment: Tensor  # (n,) int64
    status: Tensor  # (n,) int8
    attempt: Tensor  # (n,) int64, how often the initial condition was drawn again


@dataclass(frozen=True)
class System(ABC):
    """A parametric PDE with its data laws.  Fields of the subclass are its switches; see `pdejepa.systems.get`."""

    name: ClassVar[str]
    title: ClassVar[str]
    equation: ClassVar[str]
    expect: ClassVar[str]  # what one sees in a solution
    fields: ClassVar[tuple[str, ...]]
    axes_names: ClassVar[tuple[str, ...]]
    parameters: ClassVar[tuple[Parameter, ...]]
    boundaries: ClassVar[tuple[Boundary, ...]]  # one per axis
    edges: ClassVar[Padding | Literal[""]] = ""  # of convolutions; empty: what the boundaries say
    structure: ClassVar[Structure]
    reference: ClassVar[Reference]
    comes_to_rest: ClassVar[bool] = False  # True: frames may be constant in space, or equal to the one before
    slope_bound: ClassVar[float] = 1e-2  # by how much, relatively, du/dt of solutions may differ from `rhs`
    constants: ClassVar[Mapping[str, float]] = MappingProxyType({})
    dtype: ClassVar[torch.dtype] = torch.float64
    chunk: ClassVar[tuple[int, int]] = (120, 4096)  # rows solved together on (CPU, GPU)
    shard: ClassVar[int] = 1000  # trajectories per file

    # ---- blanks -------------------------------------------------------------------------------------------
    @property
    def splits(self) -> tuple[Split, ...]:
        """Sizes and meanings of the sets of trajectories; see `benchmarks`."""
        return splits_of(self.name, self.parameters)

    @property
    def extra_splits(self) -> tuple[Split, ...]:
        """Splits of our own that are made and judged only where they are named; see `benchmarks`."""
        return extra_splits_of(self.name, self.splits, has_broad=type(self).broad is not System.broad)

    @property
    def all_splits(self) -> tuple[Split, ...]:
        """The splits of the benchmark, then the extra ones."""
        return (*self.splits, *self.extra_splits)

    @property
    @abstractmethod
    def axes(self) -> dict[str, Tensor]:
        """Coordinates of the stored grid, {"x": (N,), ...}, float64."""

    @property
    @abstractmethod
    def raw_times(self) -> Tensor:
        """All output times of the source solver, (R,) float64."""

    @property
    @abstractmethod
    def frame_idx(self) -> slice:
        """Which raw frames the model sees."""

    def environment(self, split: Split, draws: Draws) -> Tensor:
        """Parameters (E,P) float64 of the environments `draws.rows`; here every one by itself, from its law."""
        laws = [self.law(parameter, split) for parameter in self.parameters]
        return torch.cat([law.draw(draws.uniform(1, at=number)) for number, law in enumerate(laws)], 1)

    @staticmethod
    def law(parameter: Parameter, split: Split) -> Range:
        """The law of a parameter in a split: that of the training data, unless it has one for outside."""
        chosen = parameter.ood if split.is_ood and isinstance(parameter.ood, Range) else parameter.train
        return chosen if isinstance(chosen, Range) else Uniform(*chosen)

    @abstractmethod
    def initial(self, draws: Draws) -> Tensor:
        """Initial states (B,C,*solver grid) float64 of the trajectories `draws.rows`."""

    def broad(self, draws: Draws) -> Tensor:
        """The same under a wider law, of the splits `broad_*`; a system may do without."""
        raise DataError(f"{self.name} has no wider law of initial states.")

    def is_poor(self, solved: Fields) -> Tensor:
        """Whether a row of the law `broad` is drawn again, (B,) bool: it failed, or the grid does not resolve it."""
        return solved.status != Outcome.OK.value

    @abstractmethod
    def _solve(self, u0: Tensor, xi: Tensor, times: list[float], t0: float) -> tuple[Tensor, Tensor]:
        """Fields (B,T,C,*grid) and status (B,) int8."""

    @abstractmethod
    def shared(self, u: Tensor) -> Tensor:
        """The parameter-free part of the right-hand side, same shape as u."""

    @abstractmethod
    def operators(self, u: Tensor) -> Tensor:
        """One operator per term of the structure, (B,M,C,*grid)."""

    @abstractmethod
    def invariants(self, fields: Tensor, xi: Tensor, times: Tensor) -> list[Check]:
        """Properties of stored fields (B,T,C,*grid), judged on float64."""

    @abstractmethod
    def solve_reference(self, u0: Tensor, xi: Tensor) -> Tensor:
        """The default frames (B,T,C,*grid), refined or computed independently as `reference.refined` says."""

    def forcing(self, t: float | Tensor, xi: Tensor, like: Tensor) -> Tensor:
        """The known forcing field (B,C,*grid) on the grid of `like`; zero unless the system has one.

        t is one time, or one for each row, (B,).
        """
        return torch.zeros_like(like)

    def refinement_report(self, u0: Tensor, xi: Tensor, fields: Tensor) -> dict[str, float]:
        """Extra discrepancies worth telling (not judged), by label; empty for most systems."""
        return {}

    # ---- declarations read by everybody --------------------------------------------------------------------
    @property
    def times(self) -> Tensor:
        """Stored output times (T,) float64."""
        return self.raw_times[self.frame_idx]

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.axes.values())

    @property
    def ndim(self) -> int:
        return len(self.axes_names)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    @cached_property
    def problem(self) -> Problem:
        """What a model must know of this system."""
        with torch.device("cpu"):  # numbers, wherever a network is being built
            points = {name: tuple(values.tolist()) for name, values in self.axes.items()}
            times = tuple(self.times.tolist())
        problem = Problem(
            name=self.name,
            fields=self.fields,
            axes=tuple(Axis(n, points[n], b) for n, b in zip(self.axes_names, self.boundaries, strict=True)),
            times=times,
            parameters=self.parameters,
            structure=self.structure,
            title=self.title,
            equation=self.equation,
            edges=self.edges,
            switches=asdict(self),
        )
        return problem.with_law(self.forcing if self.structure.forcing != "none" else None)

    def split(self, name: str) -> Split:
        for split in self.all_splits:
            if split.name == name:
                return split
        names = [split.name for split in self.all_splits]
        hint = did_you_mean(name, names) or "."
        raise DataError(f"{self.name} has no split {name!r}{hint} Its splits: {', '.join(names)}.")

    def at_size(self, size: str) -> Self:
        """The system as simulated for a named data size; only the 2-D flows differ (coarser for `tiny`)."""
        return self

    # ---- parameters ----------------------------------------------------------------------------------------
    def xi(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Tensor:
        """Named parameters -> (B,P) float64 in the order of `parameters`; numbers broadcast against sequences."""
        return build_xi(self, joined(self.name, values, named, "in a mapping and by keyword"))

    def check_xi(self, xi: Tensor) -> Tensor:
        """Refuse wrong shapes, NaN and values outside the physical limits, by name."""
        return check_xi(self, xi)

    def named(self, xi: Tensor) -> Named:
        """(B,P) -> {name: (B,)}."""
        return dict(zip(self.parameter_names, xi.unbind(1), strict=True))

    # ---- random laws ---------------------------------------------------------------------------------------
    def sample(
        self,
        split: str,
        index: Index,
        *,
        seed: int = 0,
        attempt: Tensor | int = 0,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Initial states (B,C,*solver grid) and parameters (B,P) of some trajectories of a split.

        A pure function of its arguments: the same bits are drawn on every device and for every batch.
        """
        where, chosen = pick_device(device), self.split(split)
        rows = as_rows(index)
        environments = rows % chosen.n_environments
        unique, inverse = environments.unique(return_inverse=True)
        xi = self.environment(chosen, Draws(self.name, split, "environment", seed, unique))[inverse]
        draws = Draws(self.name, chosen.initial_from or split, "initial", seed, rows, attempt, where)
        u0 = self.broad(draws) if chosen.is_broad else self.initial(draws)
        return u0.to(dtype or self.dtype), xi.to(where)

    def environment_of(self, split: str, index: Index) -> Tensor:
        return as_rows(index) % self.split(split).n_environments

    # ---- solving -------------------------------------------------------------------------------------------
    def solve(
        self,
        u0: Tensor | np.ndarray,
        xi: Tensor | np.ndarray | Mapping[str, Any] | None = None,
        *,
        times: Tensor | Sequence[float] | None = None,
        t0: float = 0.0,
        **named: Any,
    ) -> Fields:
        """Fields (B,T,C,*grid) at `times` (default: the stored frames) from the state u0 at time t0.

        Parameters come as a (B,P) tensor, a mapping, or keywords: `system.solve(u0, viscosity=1e-3)`.  Any value
        within physical limits works.  `.outcome` of the result names how each row ended.  u0 (B,C,*grid) may be an
        array; one state may be given as (C,*grid), and the axis of a single channel left out.
        """
        try:
            u0 = as_tensor(u0) if isinstance(u0, np.ndarray) else u0
            xi = as_tensor(xi) if isinstance(xi, np.ndarray) else xi
        except ValueError as error:
            raise DataError(f"{self.name} expects states and parameters as real numbers; got {error}.") from None
        if isinstance(xi, Tensor) and named:
            extra = ", ".join(named)
            raise ParameterError(f"{self.name}: give parameters as a tensor or by name, not both; got also {extra}.")
        parameters = self.check_xi(xi) if isinstance(xi, Tensor) else self.xi(xi, **named)
        u0, parameters = self._check_state(u0), parameters.to(u0.device)
        if len(parameters) == 1:
            parameters = parameters.expand(len(u0), -1)
        if len(u0) == 1 and len(parameters) > 1:
            u0 = u0.expand(len(parameters), *u0.shape[1:])
        if len(u0) != len(parameters):
            raise ParameterError(f"{self.name}: {len(u0)} initial states but {len(parameters)} parameter rows.")
        moments = [float(t) for t in (self.times if times is None else times)]
        finite = bool(moments) and all(map(math.isfinite, (t0, *moments)))
        if not finite or moments[0] < t0 - 1e-12 or any(b <= a for a, b in pairwise(moments)):
            raise ParameterError(f"{self.name}: times must ascend from t0={t0:g}; got {moments[:4]}...")
        with torch.no_grad(), few_threads(u0):
            fields, status = self._solve(u0, parameters, moments, t0)
        return as_fields(fields, torch.tensor(moments, dtype=torch.float64), status)

    def _check_state(self, u0: Tensor) -> Tensor:
        """The state as (B,C,*grid); DataError for wrong shapes and values."""
        kind = str(u0.dtype).removeprefix("torch.") if isinstance(u0, Tensor) else type(u0).__name__
        if kind not in ("float32", "float64"):
            raise DataError(f"{self.name} expects initial states as a float32 or float64 tensor; got {kind}.")
        if self.ndim <= u0.ndim < 2 + self.ndim:
            u0 = with_channel(u0, self.n_state, tuple(u0.shape[u0.ndim - self.ndim :]))
        u0 = u0[None] if u0.ndim == 1 + self.ndim and u0.shape[0] == self.n_state else u0
        expected = f"(B, {self.n_state}, {', '.join('N' for _ in self.grid)})"
        if u0.ndim != 2 + self.ndim or len(u0) == 0 or u0.shape[1] != self.n_state or len(set(u0.shape[2:])) != 1:
            hint = " Did you mean channels second?" if u0.ndim == 2 + self.ndim else ""
            raise DataError(f"{self.name} expects initial states {expected}; got {tuple(u0.shape)}.{hint}")
        self._check_points(u0.shape[-1])
        if not bool(torch.isfinite(u0).all()):
            raise DataError(f"{self.name}: the initial state holds NaN or infinite values.")
        return u0

    def _check_points(self, n: int) -> None:
        """Refuse a number of points per axis that the system cannot work with."""
        if n != self.grid[0]:
            raise DataError(f"{self.name} expects {self.grid[0]} points per axis; got {n}.")

    @property
    def n_state(self) -> int:
        """Channels of an initial state."""
        return len(self.fields)

    @property
    def stores_states(self) -> bool:
        """Whether a stored frame is a whole state, on the solver's own grid, from which the solver can go on."""
        is_whole = self.n_state == len(self.fields) and self.structure.time_order == 1
        return is_whole and getattr(self, "solver_grid", self.grid[0]) == self.grid[0]

    @property
    def n_rhs(self) -> int:
        """Channels of the state that `rhs` and `operators` act on; more than the fields if one frame is not a state."""
        return len(self.fields)

    # ---- right-hand side -----------------------------------------------------------------------------------
    def rhs(self, u: Tensor, t: float | Tensor, xi: Tensor) -> Tensor:
        """du/dt on the grid of u (B,C,*grid): shared + sum_j sign_j c_j operator_j + forcing."""
        named = self.named(xi.to(u.device))
        total = self.shared(u) + self.forcing(t, xi.to(u.device), u)
        operators = self.operators(u)  # (B,M,C,*grid)
        for j, term in enumerate(self.structure.terms):
            coefficient = (term.sign * term.coefficient(named)).to(u.dtype)
            total = total + coefficient.reshape(-1, *[1] * (u.ndim - 1)) * operators[:, j]
        return total

    def coefficients(self, xi_train: Tensor) -> Coefficients:
        """The normalised coefficients r_j, fitted on the parameters of the train split."""
        return fit_coefficients(self.structure.terms, self.named(xi_train))

    def responses(self, u: Tensor, coefficients: Coefficients) -> Tensor:
        """d rhs / d r_j = scale_j operator_j(u), (B,M,C,*grid)."""
        scale = coefficients.scale.to(device=u.device, dtype=u.dtype)
        return self.operators(u) * scale.reshape(1, -1, *[1] * (u.ndim - 1))

    # ---- generating ----------------------------------------------------------------------------------------
    def chunk_size(self, device: torch.device) -> int:
        return self.chunk[1 if device.type == "cuda" else 0]

    def generate(
        self,
        split: str,
        n: int | None = None,
        device: str | torch.device = "cpu",
        *,
        start: int = 0,
        seed: int = 0,
        raw_frames: bool = False,
        report: Callable[[int], None] | None = None,
    ) -> Generated:
        """Trajectories start..start+n-1 of a split in device memory: the values a data file would hold.

        Works through fixed chunks (aligned to multiples of the chunk size), so that host memory stays bounded and a
        trajectory meets the same neighbours whenever it is made on the same device.
        """
        where, first = pick_device(device), as_count(start)
        count = self.split(split).n - (first or 0) if n is None else as_count(n)
        if first is None or count is None or first < 0 or count < 1:
            told = f"n={count if n is None else n!r} and start={start!r}"
            raise DataError(f"{self.name}: n must be whole and 1 or more, start whole and 0 or more; got {told}.")
        n, start = count, first
        times = self.raw_times if raw_frames else self.times
        fields = torch.empty((n, len(times), len(self.fields), *self.grid), dtype=torch.float32, device=where)
        xi = torch.empty((n, len(self.parameters)), dtype=torch.float64, device=where)
        status = torch.zeros(n, dtype=torch.int8)
        attempt = torch.zeros(n, dtype=torch.int64)

        def fill(rows: tuple[int, int]) -> None:
            part = slice(rows[0] - start, rows[1] - start)
            fields[part], xi[part], status[part], attempt[part] = self._chunk(split, *rows, times, seed, where)
            if report:
                report(rows[1] - rows[0])

        map_chunks(fill, _chunks(start, start + n, self.chunk_size(where)), where)
        environment = self.environment_of(split, range(start, start + n))
        return Generated(fields, xi, times, environment, status, attempt)

    def _chunk(
        self, split: str, begin: int, end: int, times: Tensor, seed: int, device: torch.device
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Solve one chunk; a row that fails gets a new initial condition, at most MAX_ATTEMPTS times.

        A row of the law `broad` does so too if it `is_poor`: that law is ours, and shall be fit to learn from.
        """
        is_broad = self.split(split).is_broad
        rows = torch.arange(begin, end)
        attempt = torch.zeros(len(rows), dtype=torch.int64)
        u0, xi = self.sample(split, rows, seed=seed, device=device)
        solved = self.solve(u0, xi, times=times)
        fields, status = solved.as_subclass(Tensor).float(), solved.status
        for retry in range(1, MAX_ATTEMPTS):
            unfit = self.is_poor(solved).nonzero().flatten().tolist() if is_broad else solved.failures()
            failed = torch.tensor(sorted(unfit), dtype=torch.int64)
            if not len(failed):
                break
            attempt[failed] = retry
            u0, again = self.sample(split, rows[failed], seed=seed, attempt=attempt[failed], device=device)
            solved = self.solve(u0, again, times=times)
            fields[failed.to(device)] = solved.as_subclass(Tensor).float()
            status[failed] = solved.status
            solved = as_fields(fields, times, status)
        return fields, xi, status, attempt


@dataclass(frozen=True)
class SteppedSystem(System):
    """A system without a closed form: it supplies a stepper and a stable step, the march does the rest."""

    dt: float = math.nan  # largest time step
    max_steps: int = 1_000_000
    tail_limit: ClassVar[float] = math.inf  # share of grid-scale energy that counts as under-resolved

    def __post_init__(self) -> None:
        if not (0 < self.dt < math.inf and self.max_steps > 0):
            raise ConfigError(f"{self.name}: dt and max_steps must be positive, got {self.dt} and {self.max_steps}.")

    @abstractmethod
    def stepper(self, xi: Tensor, like: Tensor) -> Stepper:
        """The stepper for rows xi (B,P) whose solver grid, dtype and device are those of `like`."""

    def _solve(self, u0: Tensor, xi: Tensor, times: list[float], t0: float) -> tuple[Tensor, Tensor]:
        march = March(self.stepper(xi, u0), len(u0), self.dt, self.max_steps, self.tail_limit)
        return march.run(u0, times, t0)

    def solve_reference(self, u0: Tensor, xi: Tensor) -> Tensor:
        """The same discretisation in space with half the time step."""
        return replace(self, dt=self.dt / 2).solve(u0, xi).as_subclass(Tensor)


def relative_l2(u: Tensor, v: Tensor) -> Tensor:
    """|u - v| / |v| of each row over all other axes, (B,) float64."""
    u, v = u.double().flatten(1), v.double().flatten(1)
    return (u - v).norm(dim=1) / v.norm(dim=1).clamp(min=1e-300)


def switches_error(system: type[System], name: str, known: Sequence[str]) -> ConfigError:
    hint = did_you_mean(name, known) or "."
    return ConfigError(f"{system.name} has no switch {name!r}{hint} Its switches: {', '.join(known) or 'none'}.")


def _chunks(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """[start, stop) cut at the multiples of `size`."""
    cuts = [start, *range((start // size + 1) * size, stop, size), stop]
    return list(pairwise(cuts)) if stop > start else []
