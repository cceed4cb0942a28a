"""Floating-point operations of a training step, for budgets that are given in them.

Counted as PyTorch counts: matrix products, convolutions and attention, forward and backward; not what is done value by
value, nor Fourier transforms.
"""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from pdejepa.stages.base import Stage
from pdejepa.stages.plan import N_TIMED, PROBE_STEPS
from pdejepa.stages.resume import choose_trained
from pdejepa.stages.weights import gather, restore


def step_flops(stage: Stage) -> float:
    """The mean over typical steps of a stage, those that are timed for a budget of seconds; they leave no trace."""
    choose_trained(stage)
    before = {name: value.clone() for name, value in gather(stage.saved()).items()}  # books of codes move by themselves
    typical = [stage.probe_step(number, N_TIMED, PROBE_STEPS) for number in range(N_TIMED)]
    counted = {step: _flops(stage, step) for step in set(typical)}
    stage.zero_grad(set_to_none=True)
    restore(stage.saved(), before, "the counted steps")
    return sum(counted[step] for step in typical) / N_TIMED


def _flops(stage: Stage, step: int) -> float:
    with torch.no_grad():
        batch = stage.batch(step, PROBE_STEPS)
    # Compiled code would hide what it computes.
    with torch.compiler.set_stance("force_eager"), FlopCounterMode(display=False) as counter:
        stage(batch)["loss"].backward()
    return float(counter.get_total_flops())
