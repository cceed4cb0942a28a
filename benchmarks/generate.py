"""How fast the data are made.

    python benchmarks/generate.py                       trajectories/s of all systems on this machine
    python benchmarks/generate.py --peer                ... and the ratio to per-trajectory SciPy (Burgers, Combined)
    python benchmarks/generate.py --paper --device cuda --out results/generate.json
                                                        every split at paper size in device memory, with the achieved
                                                        share of the measured copy bandwidth for the two flows

Times include everything from a cold start (compilation too) unless a line says otherwise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from peers import PEERS, TOLERANCES

from pdejepa import systems
from pdejepa.core.device import pick_device
from pdejepa.systems.base import System, relative_l2

ROWS = {"vorticity": 2, "heterns": 4}  # trajectories timed on a CPU; 120 of the others

# Fields of the solver grid read or written per time step, counted from the code.
# vorticity, 4 stages: rfft2 4, Poisson factor 2, irfft2 4 + 2 (it copies its input); stencils 4 + 6 + 6 + 4
# heterns, 4 stages: two irfft2 (4 + 2), products 4, two rfft2 (4); updates 7 + 8 + 8 + 4, first velocity 3
PASSES = {"vorticity": 4 * 12 + 20, "heterns": 4 * 24 + 30}


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second, read plus written, of a large copy inside device memory."""
    source = torch.empty(2**31, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    for n in (3, 20):
        synchronise(device)
        start = time.perf_counter()
        for _ in range(n):
            target.copy_(source)
        synchronise(device)
    return 2 * 2**31 * 20 / (time.perf_counter() - start)


def time_rows(system: System, n: int, device: torch.device) -> float:
    """Seconds for n test trajectories, after one warm-up solve of the same chunk."""
    system.generate("test", min(n, 2), device)
    synchronise(device)
    start = time.perf_counter()
    system.generate("test", n, device)
    synchronise(device)
    return time.perf_counter() - start


def time_paper(system: System, device: torch.device, bandwidth: float | None) -> dict[str, Any]:
    """All splits at paper size in device memory, from a cold start."""
    synchronise(device)
    start, n = time.perf_counter(), 0
    status: dict[str, int] = {}
    for split in system.splits:
        made = system.generate(split.name, None, device)
        n += len(made.fields)
        for code in made.status.tolist():
            status[str(code)] = status.get(str(code), 0) + 1
        assert bool(torch.isfinite(made.fields).all())
        del made
    synchronise(device)
    seconds = time.perf_counter() - start
    row: dict[str, Any] = {"system": system.name, "trajectories": n, "seconds": round(seconds, 2), "status": status}
    if system.name in PASSES and bandwidth:
        steps = float(system.times[-1]) / system.dt  # type: ignore[attr-defined]
        moved = PASSES[system.name] * 4 * system.solver_grid**2 * steps * n  # type: ignore[attr-defined]
        row["us_per_trajectory_step"] = round(1e6 * seconds / n / steps, 2)
        row["share_of_copy_bandwidth"] = round(moved / seconds / bandwidth, 3)
    return row


def fastest_peer(name: str, system: System, n: int) -> dict[str, Any]:
    """The fastest SciPy method and tolerance that reaches the accuracy on n trajectories."""
    solve, methods, accuracy = PEERS[name]
    u0, xi = system.sample("test", range(n))
    exact = system.solve_reference(u0, xi) if name == "combined" else _finer(system, u0, xi)
    ours = relative_l2(torch.Tensor(system.solve(u0, xi)).double(), exact)
    times = system.times.numpy()
    best: dict[str, Any] = {"seconds_per_trajectory": 20.0}
    for method in methods:
        for rtol in TOLERANCES:
            start, limit = time.perf_counter(), 3 * best["seconds_per_trajectory"]
            try:
                frames = [solve(u0[i, 0].numpy(), xi[i].numpy(), times, method, rtol, limit) for i in range(n)]
            except TimeoutError:
                break
            seconds = (time.perf_counter() - start) / n
            error = relative_l2(torch.from_numpy(np.stack(frames))[:, :, None], exact)
            print(
                f"  {name} SciPy {method} rtol {rtol:g}: {seconds:.2f} s each, error {float(error.max()):.1e}",
                flush=True,
            )
            if float(error.max()) <= accuracy:
                if seconds < best["seconds_per_trajectory"]:
                    best = {
                        "method": method,
                        "rtol": rtol,
                        "seconds_per_trajectory": seconds,
                        "error": float(error.max()),
                    }
                break
    return {**best, "accuracy": accuracy, "our_error": float(ours.max())}


def _finer(system: System, u0: torch.Tensor, xi: torch.Tensor) -> torch.Tensor:
    from dataclasses import replace

    return torch.Tensor(replace(system, dt=system.dt / 8).solve(u0, xi)).double()  # type: ignore[attr-defined, call-arg, type-var]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=",".join(systems.NAMES))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--peer-rows", type=int, default=4)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = pick_device(args.device)
    bandwidth = copy_bandwidth(device) if device.type == "cuda" else None
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(
        f"{where}, torch {torch.__version__}" + (f", copy {bandwidth / 1e12:.2f} TB/s" if bandwidth else ""), flush=True
    )
    rows = []
    for name in args.systems.split(","):
        system = systems.get(name)
        row = time_paper(system, device, bandwidth) if args.paper else measure(system, device)
        if args.peer and name in PEERS:
            row["scipy"] = fastest_peer(name, system, args.peer_rows)
            row["ratio"] = round(row["scipy"]["seconds_per_trajectory"] * row["trajectories_per_s"], 1)
        rows.append(row)
        print(json.dumps(row), flush=True)
        if args.out:
            report = {"device": where, "torch": torch.__version__, "copy_bandwidth": bandwidth, "rows": rows}
            args.out.write_text(json.dumps(report, indent=1))


def measure(system: System, device: torch.device) -> dict[str, Any]:
    n = min(ROWS.get(system.name, 120), 120) if device.type == "cpu" else 120
    seconds = statistics.median(time_rows(system, n, device) for _ in range(3 if n > 10 else 1))
    return {"system": system.name, "rows": n, "trajectories_per_s": round(n / seconds, 2)}


if __name__ == "__main__":
    main()
