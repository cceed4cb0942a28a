"""Whether a training step looks at values: a step that does would wait for a GPU and could not be recorded."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from pdejepa.baselines.baseline import Baseline


class _Loss(nn.Module):
    def __init__(self, solver: Baseline, stage: str) -> None:
        super().__init__()
        self.solver, self.stage = solver, stage

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.solver.loss(self.stage, batch)["loss"]


def gradients_without_values(solver: Baseline, stage: str, batch: dict[str, Tensor]) -> list[torch.Size]:
    """Shapes of the gradients of a step whose tensors have shapes but no values; an error if it asks for one."""
    net = _Loss(solver, stage)
    tensors = dict([*net.named_parameters(), *net.named_buffers()])
    with FakeTensorMode():
        state, inputs = ({name: _empty(value) for name, value in group.items()} for group in (tensors, batch))
        loss = torch.func.functional_call(net, state, (inputs,))
        moved = [value for value in state.values() if value.requires_grad]
        return [gradient.shape for gradient in torch.autograd.grad(loss, moved)]


def _empty(value: Tensor) -> Tensor:
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.requires_grad_(value.requires_grad)
