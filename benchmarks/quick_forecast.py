"""Forecasts on one CPU core, by the field of `models.quick_field` and by the network as it was trained: ratios.

    taskset -c 0 python benchmarks/quick_forecast.py --models combined burgers --batches 1 8 --frames 3

Both are asked in turn in one process, for the same rows, and the least seconds of the repeats count: seconds of this
process on the core (`time.process_time`), which other work on the machine disturbs less than those of a clock.  Beside
them stands what plain products of the same number of operations would take, at the speed of `nn.Linear` and at that of
a packed layer of the trunk, both measured here: nobody can be faster than its products.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pdejepa.core.files import write_json
from pdejepa.forecast.forecaster import Forecaster, load
from pdejepa.models.packed import Packed
from pdejepa.training.flops import counted

HEAD = ("model", "rows", "frames", "as trained, s", "quick, s", "ratio", "products, s", "packed, s", "apart")


def least(runs: list[Callable[[], object]], n_repeats: int) -> list[float]:
    """The least seconds of each, called in turn after a warm-up."""
    used: list[list[float]] = [[] for _ in runs]
    for k in range(n_repeats + 1):
        for own, run in zip(used, runs, strict=True):
            begun = time.process_time()
            run()
            own += [time.process_time() - begun] if k else []
    return [min(own) for own in used]


@torch.no_grad()
def product_speeds(n_tokens: int, width: int) -> list[float]:
    """Operations per second of `nn.Linear` and of a packed one, from `width` features to four times as many."""
    layer, x = nn.Linear(width, 4 * width), torch.randn(n_tokens, width)
    packed, n = Packed(layer.weight, layer.bias), max(1, round(2e9 / (8 * n_tokens * width**2)))

    def repeated(call: Callable[[Tensor], Tensor]) -> None:
        for _ in range(n):
            call(x)

    return [n * 8 * n_tokens * width**2 / s for s in least([lambda: repeated(layer), lambda: repeated(packed)], 3)]


def measure(model: Forecaster, batch: int, n_frames: int | None, n_repeats: int) -> dict[str, Any]:
    """One model and batch."""
    u0, xi = model.system.sample("test", range(batch))
    first = [float(t) for t in model.system.times[: model.surrogate.history + 1]]
    u = model.system.solve(u0, xi, times=first).as_subclass(Tensor)[:, : model.surrogate.history].float()
    found: dict[bool, Tensor] = {}

    def ask(is_quick: bool) -> None:
        model.is_quick = is_quick
        found[is_quick] = model.forecast(u, xi, n_frames=n_frames).fields

    plain, quick = least([lambda: ask(False), lambda: ask(True)], n_repeats)
    apart = (found[True] - found[False]).flatten(1).norm(dim=1) / found[False].flatten(1).norm(dim=1)
    operations = counted(lambda: ask(False))
    speeds = product_speeds(batch * model.surrogate.patches.n_tokens, model.surrogate.config.field.width)
    return {
        "batch": batch,
        "frames": found[True].shape[1] - u.shape[1],
        "seconds": plain,
        "quick_seconds": quick,
        "ratio": plain / quick,
        "operations": operations,
        "product_seconds": [None if operations is None else operations / speed for speed in speeds],
        "apart": float(apart.max()),
    }


def line(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    products = ["-" if seconds is None else f"{seconds:.3g}" for seconds in row["product_seconds"]]
    told = (f"{row['seconds']:.3g}", f"{row['quick_seconds']:.3g}", f"{row['ratio']:.2f}", *products)
    return (name, str(row["batch"]), str(row["frames"]), *told, f"{row['apart']:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, help="run or model folders, or names of shipped models")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--frames", type=int, help="new frames; default: a training trajectory")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print("| " + " | ".join(HEAD) + " |\n" + "| --- " * len(HEAD) + "|")
    for name in args.models:
        model = load(name, "cpu")
        for batch in args.batches:
            rows.append({"model": name, **measure(model, batch, args.frames, args.repeats)})
            print("| " + " | ".join(line(name, rows[-1])) + " |", flush=True)
    if args.out:
        write_json(args.out, {"torch": torch.__version__, "rows": rows})


if __name__ == "__main__":
    main()
