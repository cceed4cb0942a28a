"""Floating-point operations of a training step, for budgets that are given in them.

Counted as PyTorch counts: matrix products, convolutions and attention of all that a step does, from its batch to the
optimiser; not what is done value by value, nor Fourier transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from pdejepa.training.stage import Stage
from pdejepa.training.timing import PROBE_STEPS, TYPICAL

Shape = tuple[int, ...]


def attention(q: Shape, k: Shape, v: Shape, *_: object, **__: object) -> int:
    """q k^T and p v, for queries (B,K,n,d), keys (B,K,m,d) and values (B,K,m,e)."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])


def attention_backward(_: Shape, q: Shape, k: Shape, v: Shape, *__: object, **___: object) -> int:
    """Scores once more, and the gradients of p, v, q and k."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (3 * q[3] + 2 * v[3])


def packed(x: Shape, *others: Shape | None, **_: object) -> int:
    """x W^T for W (D,K), which comes second, or third where something is added: see `models.packed`."""
    weight = next(one for one in others[1::-1] if one is not None and len(one) == 2 and one[1] == x[-1])
    return 2 * math.prod(x) * weight[0]


# PyTorch has formulas for attention on a GPU, the same as these, and none on a CPU, where it would count as nothing;
# nor has it any for weights that are packed.
ON_CPU = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    **({torch.ops.mkldnn._linear_pointwise: packed} if hasattr(torch.ops.mkldnn, "_linear_pointwise") else {}),
}


def counted(action: Callable[[], object]) -> float:
    """Operations of an action; compiled code would hide its own, so it runs uncompiled."""
    with torch.compiler.set_stance("force_eager"), FlopCounterMode(display=False, custom_mapping=ON_CPU) as counter:
        action()
    return float(counter.get_total_flops())


def step_flops(stage: Stage, take: Callable[[int], object]) -> float:
    """The mean over typical steps, those that are timed for a budget of seconds; `take` takes one.

    Steps whose batches have equal shapes are counted once.
    """
    found: dict[tuple[object, ...], float] = {}
    total = 0.0
    for step in TYPICAL:
        with torch.no_grad():
            shapes = tuple(value.shape for value in stage.batch(step, PROBE_STEPS).values())
        if shapes not in found:
            found[shapes] = counted(lambda step=step: take(step))  # type: ignore[misc]
        total += found[shapes]
    return total / len(TYPICAL)
