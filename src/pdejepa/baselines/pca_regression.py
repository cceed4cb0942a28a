"""Regression on principal components: one map per frame, from the first frame and the parameters.

    x = (q_0, xi)                  the first coefficients of the first frame, scaled; parameters on [-1, 1]
    q_t = m_t + sum_i k(x, x_i) a_{t,i},      u_t = V^T q_t              t = 1 .. T-1, x_i trajectories of train

V are POD modes of the train split, k is a Gaussian kernel.  All frames and modes share the kernel matrix, so there is
one linear system, (K + penalty) a = q - m, with many right-hand sides.  `pca_ridge` (kernel ridge regression) has one
length for all inputs; length, penalty and the weight of the parameters are chosen by the error on valid.  `pca_gp`
(Gaussian process regression) has a length per input and finds lengths and noise by the marginal likelihood of at most
300 trajectories and eight numbers of the last frame, the first four modes and those at mid-time.

scikit-learn solves and optimises (extra `classical`); what it found is evaluated here, so forecasts do not need it.
There is a map for every stored frame after the first, and for no other time; frames between the stored ones would
change nothing.  Parameters that are positive and span a decade enter by their logarithm.
Letters: B rows, T frames, D numbers of a frame, r modes, S trajectories of train, d inputs.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pdejepa.baselines.baseline import Recipe
from pdejepa.baselines.blocks import pod
from pdejepa.baselines.closed_form import ClosedForm, at_once
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError, ParameterError
from pdejepa.forecast.interface import Card, State
from pdejepa.training.stage import Say
from pdejepa.training.training_data import TrainingData

LENGTHS, WEIGHTS, PENALTIES = (1.0, 2.0, 4.0, 8.0), (0.5, 1.0, 2.0, 4.0), (1e-8, 1e-5, 1e-2)
N_OPTIMISED = 300  # trajectories whose likelihood is optimised
DECADE = 10.0


@dataclass(frozen=True)
class PcaConfig:
    """n_modes: of the frames that are predicted; n_inputs: of the first frame; n_train: trajectories, at most."""

    n_modes: int = 40
    n_inputs: int = 20
    n_train: int = 2_000


class PcaRegression(ClosedForm):
    """What the two share; subclasses find the kernel and solve."""

    basis: Tensor  # (r,D) float32
    scale: Tensor  # (n_inputs,) spread of the first frame's coefficients
    inverse_lengths: Tensor  # (d,) float64
    anchors: Tensor  # (S,d) float64, inputs of train
    dual: Tensor  # (S,T-1,r) float32, zero where there are fewer trajectories
    centre: Tensor  # (T-1,r) float32
    max_train: ClassVar[int] = 2_000

    def __init__(self, config: PcaConfig, task: Task) -> None:
        super().__init__(config, task)
        D, n, r, T = task.n_channels * torch.Size(task.grid).numel(), config.n_train, config.n_modes, task.n_frames
        d = config.n_inputs + task.n_parameters
        self.register_buffer("basis", torch.zeros(r, D))
        self.register_buffer("scale", torch.ones(config.n_inputs, dtype=torch.float64))
        self.register_buffer("inverse_lengths", torch.ones(d, dtype=torch.float64))
        self.register_buffer("anchors", torch.zeros(n, d, dtype=torch.float64))
        self.register_buffer("dual", torch.zeros(n, T - 1, r))
        self.register_buffer("centre", torch.zeros(T - 1, r))

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        n_modes, n_inputs = (40, 20) if task.ndim == 1 else (120, 40)
        model = PcaConfig(n_modes, n_inputs, cls.max_train)
        return at_once(dataclasses.replace(model, n_modes=6, n_inputs=4, n_train=20) if name == "tiny" else model)

    # ---- fitting -------------------------------------------------------------------------------------------------
    def solve_for(self, data: TrainingData, say: Say) -> None:
        _sklearn("kernel_ridge", self.card.title)
        config = self.config
        self.basis.copy_(pod.modes(pod.snapshots(data), config.n_modes))
        rows = torch.arange(min(config.n_train, data.n("train")), device=data.xi["train"].device)
        q = self._reduced(data.fields["train"][rows])  # (S,T,r) float64
        first = q[:, 0, : config.n_inputs]
        self.scale.copy_(first.std(0, unbiased=False).mean().clamp(min=1e-12))  # one: small modes matter less
        x, target = self.inputs(first, data.xi["train"][rows]), q[:, 1:]
        self.centre.copy_(target.mean(0))
        target = (target - target.mean(0)).flatten(1)  # (S,(T-1)*r)
        lengths, penalty = self.kernel(x, target, data, say)
        self._take(x, target, lengths, penalty)

    @abstractmethod
    def kernel(self, x: Tensor, target: Tensor, data: TrainingData, say: Say) -> tuple[Tensor, float]:
        """Lengths (d,) and penalty for inputs (S,d) and centred targets (S,(T-1)*r)."""

    def _take(self, x: Tensor, target: Tensor, lengths: Tensor, penalty: float) -> None:
        """Solve for the weights of all trajectories, and hold them."""
        solver = _sklearn("kernel_ridge", self.card.title).KernelRidge(alpha=penalty, kernel="rbf", gamma=0.5)
        solver.fit((x / lengths).cpu().numpy(), target.cpu().numpy())
        n = len(x)
        self.anchors.zero_()
        self.dual.zero_()
        self.anchors[:n], self.inverse_lengths[:] = x, 1 / lengths
        self.dual[:n] = torch.from_numpy(solver.dual_coef_).unflatten(1, self.centre.shape).float()

    # ---- forecasts -----------------------------------------------------------------------------------------------
    def inputs(self, first: Tensor, xi: Tensor) -> Tensor:
        """x (B,d) float64 of coefficients (B,n_inputs) and parameters (B,P)."""
        columns = [first / self.scale]
        for name, values in self.task.problem.named(xi.double()).items():
            low, high = self.task.statistics.ranges[name]
            ends = torch.tensor((low, high), dtype=torch.float64, device=xi.device)
            if low > 0 and high >= DECADE * low:
                values, ends = values.clamp(min=1e-300).log(), ends.log()
            middle, half = ends.mean(), (ends[1] - ends[0]) / 2
            columns.append(((values - middle) / (half if half > 0 else 1.0))[:, None])
        return torch.cat(columns, 1)

    def rollout(
        self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        done, last = u_hist.shape[1] - 1, len(self.centre)
        if done + n_frames > last:
            raise ParameterError(
                f"{self.card.title} has one map for each of {last} frames after the first; {done + n_frames} were "
                f"asked for. Ask for {last - done} new frames at most."
            )
        first = self._reduced(u_hist[:, :1])[:, 0, : self.config.n_inputs]
        x = self.inputs(first, state["xi"]) * self.inverse_lengths
        distance = torch.cdist(x, self.anchors * self.inverse_lengths, compute_mode="donot_use_mm_for_euclid_dist")
        kernel = torch.exp(-0.5 * distance**2).float()  # (B,S)
        q = torch.einsum("bs,str->btr", kernel, self.dual[:, done : done + n_frames])
        q = q + self.centre[done : done + n_frames]
        return (q @ self.basis).unflatten(2, u_hist.shape[2:])

    def _reduced(self, u: Tensor) -> Tensor:
        """q (B,T,r) float64 of standardised fields (B,T,C,*grid)."""
        return (u.flatten(2) @ self.basis.T).double()


def _sklearn(module: str, title: str) -> Any:
    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError:
        raise ConfigError(
            f"{title} is fitted by scikit-learn, which is not installed. "
            'Install it with: pip install "pdejepa[classical]"'
        ) from None


class PcaRidge(PcaRegression):
    card = Card(
        name="pca_ridge",
        title="PCA, kernel ridge",
        paper="Bhattacharya et al., Model Reduction and Neural Networks for Parametric PDEs, 2021 (the PCA part)",
        needs=frozenset({"xi"}),
        package="sklearn",
        is_closed_form=True,
    )

    def kernel(self, x: Tensor, target: Tensor, data: TrainingData, say: Say) -> tuple[Tensor, float]:
        """Those with the lowest error of the coefficients on valid."""
        q = self._reduced(data.fields["valid"][:])
        own = self.inputs(q[:, 0, : self.config.n_inputs], data.xi["valid"])
        target_valid = (q[:, 1:] - self.centre).flatten(1)
        best, is_parameter = float("inf"), torch.arange(x.shape[1], device=x.device) >= self.config.n_inputs
        for length, weight, penalty in itertools.product(LENGTHS, WEIGHTS, PENALTIES):
            lengths = torch.where(is_parameter, length / weight, length).double()
            gram = torch.exp(-0.5 * torch.cdist(x / lengths, x / lengths) ** 2)
            gram.diagonal().add_(penalty)
            cross = torch.exp(-0.5 * torch.cdist(own / lengths, x / lengths) ** 2)
            found = cross @ torch.linalg.solve(gram, target)  # (B,(T-1)*r)
            error = float((found - target_valid).norm(dim=1).mean())
            if error < best:
                best, kept = error, (lengths, penalty)
        say(f"{self.card.title}: lengths {float(kept[0][0]):g} and {float(kept[0][-1]):g}, penalty {kept[1]:g}")
        return kept


class PcaProcess(PcaRegression):
    card = Card(
        name="pca_gp",
        title="PCA, Gaussian process",
        paper="Higdon et al., Computer Model Calibration Using High-Dimensional Output, JASA 2008 (the emulator)",
        needs=frozenset({"xi"}),
        package="sklearn",
        is_closed_form=True,
    )

    def kernel(self, x: Tensor, target: Tensor, data: TrainingData, say: Say) -> tuple[Tensor, float]:
        """Lengths and noise of the highest marginal likelihood, for outputs of unit spread."""
        processes = _sklearn("gaussian_process", self.card.title)
        kernels = _sklearn("gaussian_process.kernels", self.card.title)
        n, (T, r) = min(N_OPTIMISED, len(x)), self.centre.shape
        frames = target[:n].unflatten(1, (T, r))[:, [(T - 1) // 2, T - 1], :4].flatten(1)
        frames = frames / frames.std(0, unbiased=False).clamp(min=1e-12)
        start = kernels.ConstantKernel(1.0, (1e-2, 1e3)) * kernels.RBF([3.0] * x.shape[1], (0.1, 1e3))
        noise = kernels.WhiteKernel(1e-3, (1e-8, 1.0))
        process = processes.GaussianProcessRegressor(start + noise, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # lengths at their bounds: inputs that do not matter
            process.fit(x[:n].cpu().numpy(), frames.cpu().numpy())
        found = process.kernel_
        lengths = torch.as_tensor(found.k1.k2.length_scale, dtype=torch.float64, device=x.device)
        penalty = float(found.k2.noise_level / found.k1.k1.constant_value)
        say(f"{self.card.title}: lengths {float(lengths.min()):.2g} to {float(lengths.max()):.2g}, noise {penalty:.2g}")
        return lengths, penalty


SOLVER = PcaRidge
