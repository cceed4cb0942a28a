"""Fitting what a solver must know of a new environment by gradients; its weights stay as they are.

Hundreds of small steps follow one another, which a GPU replays from one recording (`pdejepa.training.cuda_graph`).
Letters: B environments, d numbers of a code, K support trajectories, T frames, C channels, *grid spatial axes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from pdejepa.baselines.blocks.hypernetworks import Code
from pdejepa.training.cuda_graph import Gradients


def descend(
    start: Tensor, loss: Callable[[Tensor, Tensor], Tensor], frames: Callable[[int], Tensor], n_steps: int, lr: float
) -> Tensor:
    """What `start` becomes by steps of Adam that make loss(code, frames(number)) smaller.

    Works under `inference_mode` as well, whose tensors a gradient cannot be taken through: copies of them can.
    """
    with torch.inference_mode(False), torch.enable_grad():
        code = nn.Parameter(start.detach().clone())
        optimiser = torch.optim.Adam([code], lr=lr)
        gradients = Gradients(
            lambda batch: {"loss": loss(code, batch["u"])}, [code], nullcontext, code.is_cuda, are_alone=True
        )
        for number in range(n_steps):
            u = frames(number)
            gradients({"u": u.clone() if u.is_inference() else u})
            optimiser.step()
        gradients.close()
    return code.detach()


def fit_code(
    start: Tensor, support: Tensor, step: Callable[[Tensor, Code], Tensor], n_rolled: int, n_steps: int, lr: float
) -> Tensor:
    """Codes (B,d) of B environments, from the same start (d,).

    min_c sum_k |u_hat_{t+k} - u_{t+k}|^2, k = 1..n_rolled, from every frame t of the support (B,K,T,C,*grid) in turn;
    `step` takes frames (B*K,C,*grid) and codes (B*K,d) to the next frames.  Rows do not know of each other; those with
    the same support share the work.
    """
    distinct, back = support.flatten(1).unique(dim=0, return_inverse=True)
    support = distinct.reshape(-1, *support.shape[1:])
    B, K, T = support.shape[:3]
    u, n_rolled = support.flatten(0, 1), min(n_rolled, T - 1)  # (B*K,T,C,*grid)

    def loss(code: Tensor, frames: Tensor) -> Tensor:
        rows, now, error = Code(code.repeat_interleave(K, 0, output_size=B * K)), frames[:, 0], code.new_zeros(())
        for k in range(1, n_rolled + 1):
            now = step(now, rows)
            error = error + (now - frames[:, k]).square().flatten(1).mean(1).sum()
        return error / n_rolled

    def frames(number: int) -> Tensor:
        t = number % (T - n_rolled)
        return u[:, t : t + n_rolled + 1]

    return descend(start.expand(B, -1), loss, frames, n_steps, lr)[back]
