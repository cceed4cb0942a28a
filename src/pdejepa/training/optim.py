"""AdamW, Adam, Adan, or Muon for matrices and AdamW for the rest, with a state that is a table of named tensors.

    name of an entry   PARAMETER/KEY, for example `field.blocks.0.norm1.weight/exp_avg`
                       PARAMETER/average for the moving average of its values, where one is kept (see `average`)
                       adan/KEY for the numbers that Adan keeps for all parameters together

The state exists from the start (all zeros, as the optimisers themselves would begin), so that its names never depend
on how far the training is and loading can be strict.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from pdejepa.core.weights import check_match
from pdejepa.training.adan import Adan, adan_groups
from pdejepa.training.average import Average
from pdejepa.training.muon import Muon
from pdejepa.training.settings import OptimiserConfig

# Parts that are no map from features to features: embeddings of fields and parameters, mask tokens, output heads.
OUTER = {"embed", "embed_condition", "condition", "mask_token", "mask_tokens", "head", "C_head", "D_heads"}


class Optimiser:
    """One or two optimisers that move as one."""

    def __init__(self, parameters: dict[str, nn.Parameter], config: OptimiserConfig, window: float = 0.0) -> None:
        """`window`: share of the steps over which values are averaged; 0: no average is kept."""
        self.parameters = parameters
        self.average = Average(parameters, window) if window else None
        matrices = {name: p for name, p in parameters.items() if _is_for_muon(name, p, config)}
        others = {name: p for name, p in parameters.items() if name not in matrices}
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            self._parts.append(Muon(matrices.values(), config.muon_lr, config.weight_decay))
        if others and config.kind == "adan":
            self._parts.append(Adan(adan_groups(others, config.weight_decay, config.decay_all), config.lr))
        elif others:
            self._parts.append(_adamw(others, config))
        self._rates = [[group["lr"] for group in part.param_groups] for part in self._parts]
        self._state = {name: self._begin(p, name in matrices) for name, p in parameters.items()}
        if isinstance(self._parts[-1], Adan):
            self._state["adan"] = self._parts[-1].shared

    def _begin(self, p: nn.Parameter, is_matrix: bool) -> dict[str, Tensor]:
        """The state before the first step, where the optimiser will look for it."""
        if is_matrix:
            state = {"momentum_buffer": torch.zeros_like(p)}
            self._parts[0].state[p] = state
            return state
        if isinstance(self._parts[-1], Adan):
            return self._parts[-1].state[p]
        # Fused AdamW counts its steps on the device, the plain one on the CPU.
        count = torch.zeros((), dtype=torch.float32, device=p.device if p.is_cuda else "cpu")
        state = {"step": count, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        self._parts[-1].state[p] = state
        return state

    def set_factor(self, factor: float) -> None:
        """Scale all learning rates by `factor`, counted from their configured values."""
        for part, rates in zip(self._parts, self._rates, strict=True):
            for group, rate in zip(part.param_groups, rates, strict=True):
                group["lr"] = rate * factor

    def gradients(self) -> list[Tensor]:
        """One gradient per parameter, in the order of `parameters`."""
        found = []
        for name, p in self.parameters.items():
            if p.grad is None:
                raise RuntimeError(f"{name} is trained, but it takes no part in the loss.")
            found.append(p.grad)
        return found

    def step(self) -> None:
        for part in self._parts:
            part.step()

    def tensors(self) -> dict[str, Tensor]:
        """The state by name; the tensors themselves, not copies."""
        own = {f"{name}/{key}": value for name, state in self._state.items() for key, value in state.items()}
        return own if self.average is None else {**own, **self.average.tensors()}

    def load(self, tensors: Mapping[str, Tensor], source: str = "The optimiser state") -> None:
        """Copy a state whose names, shapes and types must be exactly ours."""
        own = self.tensors()
        check_match(tensors, own, source)
        for name, value in own.items():
            value.copy_(tensors[name])


def _is_for_muon(name: str, p: nn.Parameter, config: OptimiserConfig) -> bool:
    """Matrices, or by `muon_on` fewer (hidden) or more (kernels) of the parameters."""
    if config.kind != "muon":
        return False
    if config.muon_on == "kernels":
        return p.ndim in (2, 4) and min(p.shape[0], p[0].numel()) > 1
    is_outer = any(part in OUTER for part in name.split("."))
    return p.ndim == 2 and not (config.muon_on == "hidden" and is_outer)


def build_optimiser(modules: Mapping[str, nn.Module], config: OptimiserConfig, window: float = 0.0) -> Optimiser:
    """The optimiser of all parameters of `modules`; one that is shared by two modules counts once."""
    parameters: dict[str, nn.Parameter] = {}
    seen: set[int] = set()
    for prefix, module in modules.items():
        for name, p in module.named_parameters():
            if id(p) not in seen:
                seen.add(id(p))
                parameters[f"{prefix}.{name}"] = p
    if not parameters:
        raise RuntimeError("a stage must train at least one parameter")
    return Optimiser(parameters, config, window)


def _adamw(parameters: dict[str, nn.Parameter], config: OptimiserConfig) -> torch.optim.Optimizer:
    """One group per part with a learning rate of its own, and for what decays and what does not.

    Biases and one-dimensional tensors do not decay: pulling an offset or a scale to zero helps nobody.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, p in parameters.items():
        decays = config.decay_all or (p.ndim >= 2 and not name.endswith("bias"))
        factor = config.factors.get(name.split(".")[0], 1.0)
        groups.setdefault((config.lr * factor, config.weight_decay if decays else 0.0), []).append(p)
    is_fused = all(p.is_cuda for p in parameters.values())
    make = torch.optim.Adam if config.kind == "adam" else torch.optim.AdamW
    return make(
        [{"params": params, "lr": lr, "weight_decay": decay} for (lr, decay), params in groups.items()],
        betas=config.betas,
        fused=is_fused or None,
    )
