"""How well the latent ODE is integrated: four relative errors in latent space, one number per trajectory.

With the true latents q_t = E(u_t) + G(E(u_t)), t = 0 .. T-1, and Phi one frame of the integrator:

    late teacher   |Phi(q_t) - q_{t+1}| / |q_{t+1}|      one frame from true states, last quarter of the frames together
    final          |q_hat_{T-1} - q_{T-1}| / |q_{T-1}|   the last frame of the rollout from the observed ones
    whole          |q_hat - q| / |q|                     all frames of the rollout together
    round trip     |q_back - q_s| / |q_s|                forward from the first true state q_s to the last frame, then
                                                         back to s with the same method and a negative step

The exact flow of an ODE would come back to where it began: a round trip shows the error of the method, and how much
the field magnifies it.  Where the physics forgets (diffusion), going back magnifies without bound.  Second-order
systems have the state (q, v); errors are those of q.
Letters: B trajectories, T frames, N tokens, D width, S state width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pdejepa.core.errors import DataError
from pdejepa.evaluate.record import Checked
from pdejepa.models.condition import Drive
from pdejepa.models.integrate import rk_step
from pdejepa.models.surrogate import Surrogate

MEASURES = ("late_teacher", "final", "whole", "round_trip")
LATE = 0.25  # share of the transitions that counts as late


def rollout_errors(model: Surrogate, q: Tensor, drive: Drive) -> dict[str, Tensor]:
    """The four errors of true latents q (B,T,N,D), each (B,)."""
    if model.variant == "direct":
        raise DataError("The variant direct has no integrator whose rollouts could be compared.")
    observed, n_frames = model.history, q.shape[1]
    rolled = model.rollout(q[:, :observed], drive, n_frames - observed)
    return {
        "late_teacher": late_teacher(model, q, drive),
        "final": latent_error(rolled[:, -1:], q[:, -1:]),
        "whole": latent_error(rolled[:, observed:], q[:, observed:]),
        "round_trip": round_trip(model, q, drive),
    }


def late_frames(n_frames: int, first: int = 0) -> range:
    """The frames from which the last quarter of the transitions first..n_frames-1 starts, rounded up."""
    n = n_frames - 1 - first
    return range(n_frames - 1 - math.ceil(LATE * n), n_frames - 1)


def late_teacher(model: Surrogate, q: Tensor, drive: Drive) -> Tensor:
    """Error of single frames from true late states, (B,)."""
    frames = late_frames(q.shape[1], _first(model))
    steps = [model.advance(_state(model, q, t), _time(q, t), drive, 1) for t in frames]  # (B,1,N,S) each
    reached = torch.cat(steps, 1)[..., : q.shape[-1]]  # (B,K,N,D)
    return latent_error(reached, q[:, frames.start + 1 : frames.stop + 1])


def round_trip(model: Surrogate, q: Tensor, drive: Drive) -> Tensor:
    """Distance between a true start and where one ends after going to the last frame and back, (B,)."""
    first = _first(model)
    n = q.shape[1] - 1 - first
    start = _state(model, q, first)
    end = model.advance(start, _time(q, first), drive, n)[:, -1]
    back = backward(model, end, _time(q, first + n), drive, n)
    return latent_error(back[:, None, :, : q.shape[-1]], q[:, first : first + 1])


def backward(model: Surrogate, state: Tensor, s: Tensor, drive: Drive, n_frames: int) -> Tensor:
    """The state (B,N,S) n_frames before the frame times s (B,), by the model's own method with a negative step."""
    config = model.config.field
    length = model.conditioner.frame_gap if config.time_unit == "physical" else 1.0
    ds = -1.0 / config.n_substeps

    def field(y: Tensor, at: Tensor) -> Tensor:
        return model.field(y, at, drive)

    for frame in range(n_frames):
        for m in range(config.n_substeps):
            state = rk_step(field, state, s - frame + m * ds, ds, config.integrator, length)
    return state


def latent_error(x_hat: Tensor, x: Tensor) -> Tensor:
    """|x_hat - x| / |x| of every row, (B,) float64; the difference is taken in the precision of the latents."""
    error, norm = ((y.double().flatten(1)).norm(dim=1) for y in (x_hat - x, x))
    return error / norm


@dataclass(frozen=True)
class Rollouts(Checked):
    """Means of the four errors over n trajectories, and how many of each are not finite."""

    late_teacher: float | None
    final: float | None
    whole: float | None
    round_trip: float | None
    round_trip_median: float | None
    n: int
    n_not_finite: dict[str, int] = field(default_factory=dict)


def summarise(tables: Iterable[dict[str, Tensor]]) -> Rollouts:
    """Means over all trajectories; None where a value is not finite, which is counted.

    A round trip may magnify a few trajectories by many orders: its median stands beside its mean.
    """
    parts = list(tables)
    joined = {name: torch.cat([part[name] for part in parts]).cpu() for name in MEASURES}
    trips = joined["round_trip"].nan_to_num(nan=torch.inf, posinf=torch.inf)
    return Rollouts(
        **{name: number(values.mean()) for name, values in joined.items()},
        round_trip_median=number(trips.quantile(0.5)),
        n=len(trips),
        n_not_finite={name: int((~values.isfinite()).sum()) for name, values in joined.items()},
    )


def number(value: Tensor) -> float | None:
    """A number for JSON, which knows neither NaN nor infinity."""
    return float(value) if math.isfinite(float(value)) else None


def _first(model: Surrogate) -> int:
    """The first frame that is a state: a second-order one needs the frame before."""
    return 1 if model.is_second_order else 0


def _state(model: Surrogate, q: Tensor, t: int) -> Tensor:
    return model.state(q[:, t - 1], q[:, t]) if model.is_second_order else q[:, t]


def _time(q: Tensor, frame: int) -> Tensor:
    return torch.full((len(q),), float(frame), device=q.device)
