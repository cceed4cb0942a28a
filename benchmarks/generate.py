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
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from peers import PEERS, TOLERANCES

from pdejepa import systems
from pdejepa.core.device import pick_device
from pdejepa.systems.base import SteppedSystem, System, relative_l2

PATIENCE = 4.0  # seconds; a SciPy method that needs longer for one trajectory is given up
ROWS = {"vorticity": 1, "heterns": 1}  # trajectories timed on a CPU; 120 of the others

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
    """One SciPy method and tolerance for all of n trajectories: the fastest that is as accurate as we are.

    "As accurate": an error of at most our largest one on these trajectories, or 1e-6, the level of stored float32.
    A trajectory that no method finishes within PATIENCE seconds is left out of the mean, which favours SciPy, and told.
    """
    solve, methods = PEERS[name]
    u0, xi = system.sample("test", range(n))
    exact = system.solve_reference(u0, xi) if name == "combined" else _finer(system, u0, xi)
    accuracy = max(float(relative_l2(system.solve(u0, xi), exact).max()), 1e-6)
    best: dict[str, Any] = {"finished": 0}
    for method in methods:
        for rtol in TOLERANCES:
            seconds, worst = [], 0.0
            for i in range(n):
                start = time.perf_counter()
                try:
                    frames = solve(u0[i, 0].numpy(), xi[i].numpy(), system.times.numpy(), method, rtol, PATIENCE)
                except TimeoutError:
                    continue
                seconds.append(time.perf_counter() - start)
                worst = max(worst, float(relative_l2(torch.from_numpy(frames)[None, :, None], exact[i : i + 1])))
            mean = sum(seconds) / max(len(seconds), 1)
            print(f"  {name} SciPy {method} {rtol:g}: {len(seconds)}/{n} rows, {mean:.2f} s, {worst:.1e}", flush=True)
            if not seconds or worst > accuracy:
                if not seconds:
                    break
                continue
            if (len(seconds), -mean) > (best["finished"], -best.get("seconds_per_trajectory", 0.0)):
                best = {
                    "method": method,
                    "rtol": rtol,
                    "finished": len(seconds),
                    "of": n,
                    "seconds_per_trajectory": mean,
                }
            break
    return {**best, "accuracy": accuracy}


def _finer(system: System, u0: torch.Tensor, xi: torch.Tensor) -> torch.Tensor:
    from dataclasses import replace

    return replace(system, dt=system.dt / 8).solve(u0, xi)  # type: ignore[attr-defined, call-arg]


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
            for key in ("trajectories_per_s", "compiled_per_s"):
                if key in row:
                    row[f"ratio_{key}"] = round(row["scipy"]["seconds_per_trajectory"] * row[key], 1)
        rows.append(row)
        print(json.dumps(row), flush=True)
        if args.out:
            report = {"device": where, "torch": torch.__version__, "copy_bandwidth": bandwidth, "rows": rows}
            args.out.write_text(json.dumps(report, indent=1))


def measure(system: System, device: torch.device) -> dict[str, Any]:
    """Trajectories per second; on a CPU also with compiled operators where there is a C++ compiler."""
    n = min(ROWS.get(system.name, 120), 120) if device.type == "cpu" else 120
    row = {"system": system.name, "rows": n, "trajectories_per_s": _rate(system, n, device)}
    if device.type == "cpu" and isinstance(system, SteppedSystem) and n > 10 and shutil.which("g++"):
        os.environ["PDEJEPA_COMPILE"] = "cpu"
        time_rows(system, n, device)  # compiles
        row["compiled_per_s"] = _rate(system, n, device)
        del os.environ["PDEJEPA_COMPILE"]
    return row


def _rate(system: System, n: int, device: torch.device) -> float:
    return round(n / statistics.median(time_rows(system, n, device) for _ in range(3 if n > 10 else 1)), 2)


if __name__ == "__main__":
    main()
