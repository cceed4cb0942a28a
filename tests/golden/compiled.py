"""The parts of every network that are compiled on a GPU, by name and class; where their files lie does not matter."""

from __future__ import annotations

import os
from unittest import mock

import torch._dynamo
from torch import nn

from pdejepa import baselines
from pdejepa.models.blocks import compile_blocks
from tests.golden.cases import STAGES, method_stage, solver_stage

SYSTEMS = ("advection", "wave_b", "burgers")  # what is compiled differs: second order has a start-up head, forcing more
Parts = dict[str, str]


def compiled(module: nn.Module) -> Parts:
    """Qualified name -> class of all that `compile_blocks` compiles; nothing is compiled before it is called."""
    config = torch._dynamo.config
    kept = {"recompile_limit": config.recompile_limit, "suppress_errors": config.suppress_errors}
    with mock.patch.dict(os.environ), config.patch(kept):
        os.environ.pop("PDEJEPA_COMPILE", None)
        compile_blocks(module)
    parts = {name: part for name, part in module.named_modules() if part._compiled_call_impl is not None}
    return {name: type(part).__name__ for name, part in sorted(parts.items())}


def compiled_parts() -> dict[str, Parts]:
    """Those of every stage of the method and of every solver."""
    method = {f"{name} of {system}": method_stage(name, system) for system in SYSTEMS for name in STAGES}
    solvers = {name: solver_stage(name, baselines.get(name).card.stages[0]).solver for name in baselines.NAMES}
    return {name: compiled(module) for name, module in {**method, **solvers}.items()}
