"""Small data to import: waves that travel with a speed and decay with a rate, 40 of them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

N, T, X = 40, 6, 32
OPTIONS = ("--dt", "0.5", "--box", "0:1", "--periodic", "x")


def waves(n: int = N) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Fields (n,T,X) float32 and parameters {name: (n,)}."""
    draws = np.random.default_rng(0)
    speed, decay, phase = draws.uniform(0.5, 1.0, n), draws.uniform(0.1, 0.5, n), draws.uniform(0, 6.28, n)
    x, t = np.arange(X) / X, 0.5 * np.arange(T)
    moved = x[None, None] - 0.1 * speed[:, None, None] * t[None, :, None]  # (n,T,X)
    u = np.exp(-decay[:, None, None] * t[None, :, None]) * np.sin(2 * math.pi * moved + phase[:, None, None])
    return u.astype(np.float32), {"speed": speed, "decay": decay}


def write_table(path: Path, columns: dict[str, np.ndarray]) -> Path:
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(repr, row)) for row in rows)]) + "\n")
    return path


def write_source(folder: Path) -> tuple[Path, Path]:
    """fields.npz with u (n,t,x), and table.csv."""
    u, columns = waves()
    np.savez(folder / "fields.npz", u=u)
    return folder / "fields.npz", write_table(folder / "table.csv", columns)


def words(source: Path | str, table: Path | str, out: Path, *more: str) -> list[str]:
    """The command that imports them."""
    told = [str(source), "--axes", "n,t,x", "--params", str(table), *OPTIONS]
    return ["import", *told, "--name", "waves", "--yes", "--out", str(out), *more]
