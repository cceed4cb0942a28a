"""Affine operator inference (Peherstorfer & Willcox 2016; McQuarrie, Khodabakhshi & Willcox 2023): a reduced model
whose operators are fitted to frames, not projected.

    q = V u                                                   POD modes of the train split
    dq/dt = C(q) + sum_j r_j(xi) D_j(q) + V f(t)              C, D_j: a constant, a linear and a quadratic term each

The predictor of PDE-JEPA with a linear encoder: r_j are the same normalised coefficients, C is there where the equation
has a part without parameters.  C and D_j follow from least squares on dq/dt, taken by fourth-order differences; a known
forcing f enters as it is, projected; equations that are linear (`structure.scaling` = {}) get no quadratic terms.
How many modes are used, and the ridge, are those with the lowest error of whole forecasts on valid.

`opinf_stable` changes three things against rows that blow up.  The quadratic terms preserve energy, q . H(q,q) = 0, as
those of transport do; the growing eigenvalues of every row's linear operator are moved to the imaginary axis; and the
last third of the modes is damped, by a rate that valid chooses, because a truncated cascade piles up there.  Each part
alone cannot make |q| grow for ever; together they have no proof, and what still diverges is counted.

`opinf_fine` and `opinf_stable_fine` are fitted to ten times as many frames, which the system's own solver makes from
the first one (`blocks.fine_frames`), of 500 trajectories at most; what is stored is often too coarse to differentiate.

Own least squares, and not the package `opinf`: its affine models hold the features of all frames at once, where ours
sum Kronecker products over trajectories (`blocks.affine_least_squares`), and they know no such constraint.
Letters: B rows, T frames, D numbers of a frame, r modes, M operators, p features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pdejepa.baselines.baseline import Recipe
from pdejepa.baselines.blocks import affine_least_squares as least_squares
from pdejepa.baselines.blocks import pod
from pdejepa.baselines.blocks.fine_frames import checked_system, trajectories
from pdejepa.baselines.blocks.quadratic_ode import QuadraticOde, rolled_out
from pdejepa.baselines.closed_form import ClosedForm, at_once
from pdejepa.baselines.task import Task
from pdejepa.core.errors import DataError
from pdejepa.forecast.interface import Card, State
from pdejepa.training.stage import Say
from pdejepa.training.training_data import TrainingData

REFINE, N_FINE = 10, 500  # frames in a gap, and trajectories, of what is solved for
LEAST_FRAMES = 5


@dataclass(frozen=True)
class OpInfConfig:
    """n_modes, ridges, decays: what valid chooses from; a decay is the damping rate of the last mode, per frame gap."""

    n_modes: tuple[int, ...] = (8, 12, 16, 20, 30, 40)
    ridges: tuple[float, ...] = (1e-6, 1e-4, 1e-3, 1e-2)
    decays: tuple[float, ...] = (0.0,)
    is_stable: bool = False
    refine: int = 1
    n_train: int = 0  # trajectories, at most; 0: all


class OperatorInference(ClosedForm):
    card = Card(
        name="opinf",
        title="Operator inference",
        paper="McQuarrie et al., Nonintrusive Reduced-Order Models for Parametric PDEs, SIAM J. Sci. Comput. 2023",
        needs=frozenset({"xi"}),
        is_closed_form=True,
    )
    is_stable: ClassVar[bool] = False
    refine: ClassVar[int] = 1
    basis: Tensor  # (r,D) float32
    weights: Tensor  # (M,p,r) float64, zero beyond the modes that are used
    decay: Tensor  # (r,) float64
    n_used: Tensor  # () int64

    def __init__(self, config: OpInfConfig, task: Task) -> None:
        super().__init__(config, task)
        if task.n_frames < LEAST_FRAMES:
            raise DataError(
                f"{self.card.title} needs {LEAST_FRAMES} frames or more, to differentiate them; these "
                f"{task.problem.name} data have {task.n_frames}."
            )
        structure, r = task.problem.structure, max(config.n_modes)
        self.degree = 1 if structure.scaling == {} else 2
        n_operators = len(structure.terms) + structure.has_shared
        D, p = task.n_channels * torch.Size(task.grid).numel(), least_squares.n_features(r, self.degree)
        self.register_buffer("basis", torch.zeros(r, D))
        self.register_buffer("weights", torch.zeros(n_operators, p, r, dtype=torch.float64))
        self.register_buffer("decay", torch.zeros(r, dtype=torch.float64))
        self.register_buffer("n_used", torch.tensor(0))

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        is_linear = task.problem.structure.scaling == {}
        n_modes: tuple[int, ...] = (40, 80, 160, 240) if is_linear and task.ndim > 1 else OpInfConfig.n_modes
        decays = (0.0, 1.0) if cls.is_stable else (0.0,)
        n_train = N_FINE if cls.refine > 1 else 0
        model = OpInfConfig(n_modes, decays=decays, is_stable=cls.is_stable, refine=cls.refine, n_train=n_train)
        if name == "tiny":
            model = dataclasses.replace(model, n_modes=(4, 6), ridges=(1e-4, 1e-2), decays=decays[-1:])
        return at_once(model)

    # ---- fitting -------------------------------------------------------------------------------------------------
    def solve_for(self, data: TrainingData, say: Say) -> None:
        config, r = self.config, max(self.config.n_modes)
        if config.refine > 1:
            checked_system(data, self.card.title)
        self.basis.copy_(pod.modes(pod.snapshots(data), r))
        equations = least_squares.NormalEquations(self.degree)
        for u, xi in trajectories(data, config.refine, config.n_train, self.card.title):
            q = self.reduced(u)
            times = [k / config.refine for k in range(q.shape[1])]
            dq = least_squares.rate(q, 1 / config.refine) - self._forcing(xi, times)
            equations.add(q, dq, self.coefficients(xi))
        self._take(*self._best(data, equations, say))

    def _best(
        self, data: TrainingData, equations: least_squares.NormalEquations, say: Say
    ) -> tuple[Tensor, int, float]:
        """Operators, modes and decay that are best on valid; two sizes in a row that are worse end the search."""
        config, best, n_worse = self.config, float("inf"), 0
        for n in config.n_modes:
            before, (gram, right) = best, equations.of_modes(n)
            for ridge in config.ridges:
                found = self._solution(gram, right, ridge)
                for decay in config.decays:
                    self._take(found, n, decay)
                    error = self.error_on_valid(data)
                    say(f"{self.card.title}: {n} modes, ridge {ridge:g}, decay {decay:g}: {error:.4g} on valid")
                    if error < best:
                        best, kept = error, (found, n, decay)
            n_worse = n_worse + 1 if best == before else 0
            if n_worse == 2:
                break
        return kept

    def _solution(self, gram: Tensor, right: Tensor, ridge: float) -> Tensor:
        if self.config.is_stable and self.degree == 2:
            return least_squares.energy_preserving(gram, right, ridge)
        return least_squares.ridge_solution(gram, right, ridge)

    def _take(self, w: Tensor, n: int, decay: float) -> None:
        """Hold operators w (M,p,n) of the first n modes."""
        keep = least_squares.chosen(n, self.basis.shape[0], self.degree).to(w.device)
        self.weights.zero_()
        self.weights[:, keep, :n] = w
        ramp = torch.linspace(0.0, 3.0, n, dtype=torch.float64) - 2.0  # 0 at two thirds of the modes, 1 at the last
        self.decay.zero_()
        self.decay[:n] = decay * ramp.clamp(min=0)
        self.n_used.fill_(n)

    # ---- forecasts -----------------------------------------------------------------------------------------------
    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        n, xi, t0 = int(self.n_used), state["xi"], float(u_hist.shape[1] - 1)
        if n_frames == 0:
            return u_hist[:, :0]
        keep = least_squares.chosen(n, self.basis.shape[0], self.degree).to(u_hist.device)
        has_forcing = self.task.problem.structure.forcing != "none"
        ode = QuadraticOde(
            self.weights[:, keep, :n],
            self.coefficients(xi),
            self.decay[:n],
            is_stable=self.config.is_stable,
            drive=(lambda t: self._forcing(xi, [t])[:, 0, :n]) if has_forcing else None,
        )
        q = rolled_out(ode, self.reduced(u_hist[:, -1:])[:, 0, :n], [t0 + 1 + k for k in range(n_frames)], t0)
        return (q.float() @ self.basis[:n]).unflatten(2, u_hist.shape[2:])

    def reduced(self, u: Tensor) -> Tensor:
        """q (B,T,r) float64 of standardised fields (B,T,C,*grid)."""
        return (u.flatten(2) @ self.basis.T).double()

    def coefficients(self, xi: Tensor) -> Tensor:
        """(B,M) float64: a one for C where there is one, and r_j(xi)."""
        named, columns = self.task.problem.named(xi.double()), []
        if self.task.problem.structure.has_shared:
            columns.append(torch.ones_like(xi[:, 0], dtype=torch.float64))
        for term in self.task.problem.structure.terms:
            centre, scale = self.task.statistics.coefficients[term.name]
            columns.append(term.sign * (term.coefficient(named).double() - centre) / scale)
        return torch.stack(columns, 1)

    def _forcing(self, xi: Tensor, times: Sequence[float]) -> Tensor:
        """The known forcing at times in frame gaps, as it drives the modes, (B,T,r); zero where there is none."""
        problem = self.task.problem
        if problem.structure.forcing == "none":
            return torch.zeros((), dtype=torch.float64, device=xi.device)
        std = self.task.statistics.moments(problem.ndim, xi.device)[1]
        like = torch.empty((len(xi), self.task.n_channels, *self.task.grid), device=xi.device)
        seconds = [problem.times[0] + problem.frame_gap * t for t in times]
        if problem.structure.forcing == "constant":
            seconds = seconds[:1]
        fields = torch.stack([problem.forcing(t, xi, like) for t in seconds], 1)  # (B,T,C,*grid)
        return self.reduced((fields * (problem.frame_gap / std)).float())


class StableOperatorInference(OperatorInference):
    card = dataclasses.replace(OperatorInference.card, name="opinf_stable", title="Operator inference, stable")
    is_stable = True


class FineOperatorInference(OperatorInference):
    card = dataclasses.replace(OperatorInference.card, name="opinf_fine", title="Operator inference, fine frames")
    refine = REFINE


class FineStableOperatorInference(StableOperatorInference):
    card = dataclasses.replace(
        OperatorInference.card, name="opinf_stable_fine", title="Operator inference, stable, fine frames"
    )
    refine = REFINE


SOLVER = OperatorInference
