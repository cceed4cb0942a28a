"""How fast the stages train, and how much of the machine they use.

    python benchmarks/train.py --systems combined --recipe fast --device cuda --out results/train-h200.json
    python benchmarks/train.py --recipe paper --stages pretrain dynamics --set dynamics.training.batch=192
    python benchmarks/train.py --systems advection --recipe tiny --device cpu

Every stage of every system runs on a few hundred trajectories made in memory: samples per second; achieved TFLOP/s
(matrix products, attention and convolutions, counted by PyTorch, forward and backward) against the measured peak of
a large matrix product in the same run; where the time goes, by kernels; and the ratio to the same stage run plainly:
no compilation, no recorded steps, no caches of latents.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from pdejepa.core.config import load_config
from pdejepa.core.device import device_name, pick_device
from pdejepa.core.run_folder import METHOD_STAGES
from pdejepa.method import recipes
from pdejepa.method.chain import BUILD
from pdejepa.method.load_data import load_data
from pdejepa.method.method_stage import MethodStage
from pdejepa.method.run_config import RunConfig
from pdejepa.models.blocks import compile_blocks
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.cuda_graph import Gradients
from pdejepa.training.guard import clip_gradients
from pdejepa.training.optim import build_optimiser
from pdejepa.training.resume import choose_trained
from pdejepa.training.stage import Context
from pdejepa.training.training_data import TrainingData

KINDS = {
    "attention": ("flash", "fmha", "attention", "softmax"),
    "matrix products": ("gemm", "nvjet", "cutlass", "addmm", "bmm", "aten::mm", "sm90", "matmul"),
    "convolutions": ("conv", "cudnn", "wgrad", "dgrad", "fprop"),
}


class Runner:
    """One stage, one step at a time, as the training loop does it."""

    def __init__(self, config: RunConfig, name: str, data: TrainingData, device: torch.device) -> None:
        torch.manual_seed(0)
        model = Surrogate(data.problem, config.model, config.variant, data.statistics, config.history).to(device)
        self.device, self.precision = device, config.precision
        self.stage: MethodStage = BUILD[name](config, data, model, Context(device))
        if device.type == "cuda" and config.compile:
            compile_blocks(self.stage)
        choose_trained(self.stage)
        self.optimiser = build_optimiser(self.stage.trained(), self.stage.settings.optimiser)
        parameters = list(self.optimiser.parameters.values())
        should_record = config.record and device.type == "cuda"
        self.gradients = Gradients(self.stage, parameters, self.autocast, should_record)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def step(self, step: int) -> None:
        with torch.no_grad():
            batch = self.stage.batch(step, 1000)
        self.gradients(batch)
        gradients = self.optimiser.gradients()
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        clip_gradients(gradients, norm, self.stage.settings.optimiser.clip)
        self.optimiser.step()
        with torch.no_grad():
            self.stage.after_update(step, 1000)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, n: int, first: int) -> float:
        self.wait()
        start = time.perf_counter()
        for step in range(first, first + n):
            self.step(step)
        self.wait()
        return (time.perf_counter() - start) / n


def matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large matrix product."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    for repeat in (3, 20):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        for _ in range(repeat):
            a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return 2 * n**3 * 20 / (time.perf_counter() - start)


def shares(runner: Runner, first: int, n: int) -> dict[str, float]:
    """Where the time of the device goes, as shares by kind of kernel."""
    is_gpu = runner.device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if is_gpu else ProfilerActivity.CPU]) as record:
        for step in range(first, first + n):
            runner.step(step)
        runner.wait()
    totals = dict.fromkeys((*KINDS, "other"), 0.0)
    for event in record.key_averages():
        used = event.self_device_time_total if is_gpu else event.self_cpu_time_total
        name = event.key.lower()
        kind = next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "other")
        totals[kind] += used
    whole = sum(totals.values()) or 1.0
    return {kind: round(value / whole, 3) for kind, value in totals.items()}


def measure(config: RunConfig, name: str, data: TrainingData, device: torch.device, n: int) -> dict[str, Any]:
    """Speed of one stage, and of the same stage run plainly."""
    begun = time.perf_counter()
    runner = Runner(config, name, data, device)
    runner.seconds(6, 0)
    start_up = time.perf_counter() - begun
    each = runner.seconds(n, 6)
    split = shares(runner, 6 + n, 6)
    del runner
    gc.collect()
    torch.cuda.empty_cache()
    latents = config.latents if name == "decode" else "on_the_fly"  # rollouts are always kept
    plain = Runner(dataclasses.replace(config, compile=False, record=False, latents=latents), name, data, device)
    plain.seconds(3, 0)
    plain_each = plain.seconds(max(3, n // 4), 6)
    n_counted = 6 if name == "pretrain" else 1  # its steps differ in kind; counting is slow
    with FlopCounterMode(display=False) as counter:
        for step in range(6, 6 + n_counted):
            plain.gradients(plain.stage.batch(step, 1000))
    flops = counter.get_total_flops() / n_counted
    return {
        "system": config.system,
        "stage": name,
        "batch": plain.stage.settings.batch,
        "ms_per_step": round(1e3 * each, 3),
        "samples_per_s": round(plain.stage.settings.batch / each, 1),
        "tflops": round(flops / each / 1e12, 3),
        "ratio_to_plain": round(plain_each / each, 2),
        "start_up_s": round(start_up, 1),
        "time": split,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--systems", nargs="+", default=["combined"])
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--stages", nargs="+", default=list(METHOD_STAGES))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--trajectories", type=int, default=256)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="other settings than the recipe's")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = pick_device(args.device)
    name = device_name(device)
    report: dict[str, Any] = {"device": name, "torch": torch.__version__, "recipe": args.recipe, "set": args.set}
    report["rows"] = []
    report["peak_tflops"] = {
        kind: round(matmul_peak(device, dtype) / 1e12, 3)
        for kind, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32))
    }
    print(f"{name}: matrix products {report['peak_tflops']} TFLOP/s")
    for system in args.systems:
        config = load_config(RunConfig, None, args.set, recipes.get(system, args.recipe))
        config = dataclasses.replace(config, counts={"train": args.trajectories, "valid": 4}, device=str(device))
        data = load_data(config, device, show=False)
        for stage in args.stages:
            row = measure(config, stage, data, device, args.steps)
            row["share_of_peak"] = round(row["tflops"] / report["peak_tflops"][config.precision], 4)
            report["rows"].append(row)
            print(json.dumps(row), flush=True)
            if args.out:
                args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
