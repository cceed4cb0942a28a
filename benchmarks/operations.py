"""Operations of one training step of every solver, on a CPU and without computing: what a GPU would have to be sent.

    python benchmarks/operations.py combined
    python benchmarks/operations.py gray_scott --solvers coda,lns --recipe fast

A recorded kernel takes a GPU two or three microseconds even if it moves nothing, so that a step of a small network
takes as long as its operations are many.  Counted are operations of PyTorch, uncompiled, that touch values (views do
not), forward and backward, without the optimiser; and the bytes they read and write.  Ratios are to a step of FNO.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pdejepa import baselines, systems
from pdejepa.baselines.fit import FitStage, build
from pdejepa.baselines.pool import Pool, build_pool
from pdejepa.training.resume import choose_trained
from pdejepa.training.stage import Context

REFERENCE = "fno"
CPU = torch.device("cpu")


class Count(TorchDispatchMode):
    """Operations that made new values, and the bytes of all that went in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.n_bytes = 0, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if function.namespace == "aten" and not function.is_view:
            self.n += 1
            tensors = [leaf for leaf in tree_leaves((args, made)) if isinstance(leaf, torch.Tensor)]
            self.n_bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return made


def step(stage: FitStage) -> Count:
    """What a step of a stage does: with tensors that have shapes and no values, where it does not look at them."""
    choose_trained(stage)
    batch, state = stage.batch(0, 10), dict([*stage.named_parameters(), *stage.named_buffers()])
    with contextlib.ExitStack() as stack:
        if stage.name not in stage.solver.card.unrecorded:
            mode = stack.enter_context(FakeTensorMode())
            batch = {name: mode.from_tensor(value) for name, value in batch.items()}
            state = {name: mode.from_tensor(value) for name, value in state.items()}
        count = stack.enter_context(Count())
        torch.func.functional_call(stage, state, (batch,))["loss"].backward()
    return count


def counted(name: str, recipe: str, pool: Pool) -> Iterator[tuple[str, Count]]:
    """Every stage of a solver."""
    kind = baselines.get(name)
    parts = kind.recipe(recipe, pool.task)
    solver = build(kind, parts, pool)
    for part in parts.stages:
        yield part.name, step(FitStage(solver, part, pool, Context(CPU), 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("system", choices=systems.NAMES)
    parser.add_argument("--solvers", default="all", help="names with commas in between")
    parser.add_argument("--recipe", default="fast")
    given = parser.parse_args()
    names = list(baselines.NAMES) if given.solvers == "all" else given.solvers.split(",")
    pool = build_pool(systems.get(given.system), {"train": 40, "valid": 10}, CPU)
    ((_, reference),) = counted(REFERENCE, given.recipe, pool)
    print(f"{'solver':16} {'stage':12} {'operations':>10} {'x ' + REFERENCE:>8} {'GB':>8}")
    for name in names:
        for stage, count in counted(name, given.recipe, pool):
            ratio = count.n / reference.n
            print(f"{name:16} {stage:12} {count.n:10,} {ratio:8.1f} {count.n_bytes / 1e9:8.2f}", flush=True)


if __name__ == "__main__":
    main()
