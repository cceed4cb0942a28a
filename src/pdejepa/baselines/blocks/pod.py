"""Proper orthogonal decomposition: the orthonormal modes that hold most of the energy of some frames.

    u = sum_k q_k v_k + rest,   q_k = <u, v_k>          v_k: eigenvectors of the mean of u u^T, largest first

Computed from at most `N_SNAPSHOTS` frames, by the smaller of the two products u u^T and u^T u.
Letters: S frames, D numbers of a frame, r modes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pdejepa.training.training_data import TrainingData

N_SNAPSHOTS = 3_000
LEAST = 1e-10  # share of the largest eigenvalue below which a mode is rounding


def snapshots(data: TrainingData) -> Tensor:
    """At most N_SNAPSHOTS stored frames (S,D) of train, all times of evenly spread trajectories."""
    n, T = data.fields["train"].shape[:2]
    every = max(1, math.ceil(n * T / N_SNAPSHOTS))
    rows = torch.arange(0, n, every, device=data.xi["train"].device)
    return data.fields["train"][rows].flatten(2).flatten(0, 1)


def modes(frames: Tensor, r: int) -> Tensor:
    """The first r modes (r,D) float64 of frames (S,D); zero where the frames span fewer."""
    u = frames.double()
    is_wide = u.shape[1] > len(u)
    values, vectors = torch.linalg.eigh(u @ u.T if is_wide else u.T @ u)  # ascending
    values, vectors = values.flip(0)[:r].clamp(min=0), vectors.flip(1)[:, :r]
    if is_wide:
        vectors = u.T @ vectors / values.sqrt().clamp(min=1e-300)  # (D,r)
    vectors = torch.where(values > LEAST * values[0].clamp(min=1e-300), vectors, 0.0)
    found = frames.new_zeros((r, u.shape[1]), dtype=torch.float64)
    found[: vectors.shape[1]] = vectors.T
    return found
