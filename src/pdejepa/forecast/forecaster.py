"""Forecasts: a state, parameters by name, a number of frames; physical units in and out.

    model = pdejepa.load("RUN")
    result = model.forecast(u0, viscosity=5e-3)
    result.fields      (B,H+n,C,*grid)   the H observed frames first, then the n new ones
    result.new         (B,n,C,*grid)     the new ones only
    result.outcome     per row: ok, or unstable from some frame on (those frames are NaN)
    result.support     what of the request lies outside the training data

Letters: B rows, H observed frames, n new frames, C channels, *grid spatial axes, N tokens, D latent width.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pdejepa.core.arrays import as_count, gradients_kept
from pdejepa.core.device import few_threads, full_precision, map_chunks, pick_device, without_new_code
from pdejepa.core.errors import ExtrapolationWarning, ParameterError
from pdejepa.core.run_folder import METHOD_STAGES
from pdejepa.forecast import request
from pdejepa.forecast.bands import Bands, read_bands
from pdejepa.forecast.header import system_of
from pdejepa.forecast.interface import Card, Forecast, Outcome
from pdejepa.forecast.locate import find_model
from pdejepa.forecast.model_folder import load_surrogate, write_model
from pdejepa.forecast.support import Support, judge, stronger, unlike
from pdejepa.models.condition import ForcingField
from pdejepa.models.surrogate import Surrogate
from pdejepa.systems import System
from pdejepa.systems.inputs import trajectories

if TYPE_CHECKING:
    from pdejepa.forecast.sweep import Sweep

CARD = Card(
    name="pdejepa",
    title="PDE-JEPA",
    paper="the method of this package",
    needs=frozenset({"xi"}),
    stages=(*METHOD_STAGES, "polish"),
    has_encoder=True,
)
LATENT_GROWTH = 10.0  # an rms of q beyond this times that of the observed frames counts as unstable
FIELD_SPREADS = 100.0  # so does a value this many standard deviations of the training data from their mean
MEMORY = {"cpu": 3e8, "cuda": 4e9}  # bytes that one piece of work may take, about
MAX_LENGTHS = 1000  # training trajectories that a forecast may last; more is taken for a mistake
N_LIVE = 4  # maps of the widest layer that a decoder holds at once, about


class Forecaster:
    """A trained model ready to use.  `details` is the content of its config.json, `folder` where it came from."""

    def __init__(
        self,
        surrogate: Surrogate,
        details: dict[str, Any],
        device: torch.device,
        folder: Path | None = None,
        system: System | None = None,
    ) -> None:
        self.surrogate, self.details, self.device, self.folder = surrogate, details, device, folder
        self.problem, self._system = surrogate.problem, system
        self.bands: Bands | None = None  # calibrated half widths, see `pdejepa calibrate`
        self.is_quick = True  # on a CPU in fewer operations, see `models.quick_field`
        self.takes_finer_steps = True  # where terms are stronger than in training; see `Surrogate.finer_steps`

    @property
    def system(self) -> System:
        """The system that made the training data, with its solver and random laws."""
        if self._system is None:
            self._system = system_of(self.problem)
        return self._system

    @property
    def n_frames(self) -> int:
        """Frames of a training trajectory, the observed ones included."""
        return len(self.problem.times)

    @property
    def card(self) -> Card:
        """What it needs, as the published solvers tell it."""
        return replace(CARD, history=self.surrogate.history)

    def forecast(
        self,
        u0: Any,
        xi: Any | Mapping[str, Any] | None = None,
        *,
        n_frames: int | None = None,
        forcing: Any = None,
        t0: float | None = None,
        gradients: bool = False,
        **named: Any,
    ) -> Forecast:
        """Forecast `n_frames` new frames (default: up to the end of a training trajectory) from u0 at time t0.

        u0: (C,*grid) or (B,C,*grid), tensor or array, physical units.  Models that observe two frames take
        (2,C,*grid) or (B,2,C,*grid); the latter also gives two frames to a one-frame model of a second-order system.
        Parameters: by name, one value or one per row, as a mapping, or as a tensor xi (B,P).
        forcing: {"forcing_amplitude_1": 0.3, ...}, a field (*grid), (C,*grid) or (B,C,*grid) that stays, or a
        function f(t, x) (2-D: f(t, x, y) with x (N,1) and y (1,M)) of the time, one number, and the coordinates.
        gradients: keep the graph, so that fields can be differentiated with respect to u0 and parameters given as
        tensors.  It takes the memory of a training step; numbers of steps are held fixed.
        The results are on the CPU if u0 was an array, else on its device.
        """
        with gradients_kept(gradients), torch.set_grad_enabled(gradients):
            result = self._forecast(u0, xi, n_frames, forcing, t0, named)
        if not result.support.is_inside:
            warnings.warn(str(result.support), ExtrapolationWarning, stacklevel=2)
        return result

    def _forecast(
        self, u0: Any, xi: Any, n_frames: int | None, forcing: Any, t0: float | None, named: dict[str, Any]
    ) -> Forecast:
        began = time.perf_counter()
        u = request.observed_frames(self.problem, u0, self.surrogate.history)
        rows = request.parameters(self.problem, xi, named, forcing)
        u, rows = request.match_rows(self.problem, u, rows)
        n_new = self._checked_frames(n_frames, u.shape[1])
        start = float(self.problem.times[0]) if t0 is None else _checked_time(t0)
        field = request.forcing_field(self.problem, forcing, len(rows), start, self.device)
        with_gradients = torch.is_grad_enabled()

        def run(part: slice) -> tuple[Tensor, Tensor]:
            own = field(part) if field is not None else None
            one_thread = few_threads() if self.device.type == "cpu" else contextlib.nullcontext()
            with one_thread, torch.set_grad_enabled(with_gradients):  # a worker does not know what the caller set
                return self._run(u[part], rows[part], n_new, start, own)

        pieces = self.pieces(len(rows), u.shape[1] + n_new)
        with full_precision(self.device), without_new_code(self.device):
            # functions of users need not bear several threads
            parts = [run(piece) for piece in pieces] if callable(forcing) else map_chunks(run, pieces, self.device)
        decoded, first_bad = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        n_observed = u.shape[1]
        total = n_observed + n_new
        return Forecast(
            problem=self.problem,
            fields=torch.cat((u, decoded[:, n_observed:]), 1),
            times=start + self.surrogate.conditioner.frame_gap * torch.arange(total, dtype=torch.float64),
            xi=rows.clone(),
            n_observed=n_observed,
            reconstruction=decoded[:, :n_observed],
            support=self.support(u, decoded[:, :n_observed], rows, total, field is not None),
            outcome=tuple(Outcome.of(n_good, total) for n_good in first_bad.tolist()),
            seconds=time.perf_counter() - began,
            bands=self.bands if forcing is None or isinstance(forcing, Mapping) else None,
        )

    def sweep(
        self,
        u0: Any,
        vary: Mapping[str, Any],
        *,
        n_frames: int | None = None,
        sensitivities: bool = True,
        **fixed: Any,
    ) -> Sweep:
        """Forecasts of one state under every combination of the values of one or two parameters; see `forecast.sweep`.

        vary: {name: values}; the others by name.  sensitivities: also the size of d u_hat / d parameter of every row.
        """
        from pdejepa.forecast.sweep import sweep

        return sweep(self, u0, vary, fixed, n_frames=n_frames, sensitivities=sensitivities)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights and config.json, from which `pdejepa.load` reads the model again."""
        write_model(self.surrogate, folder, self.details)

    # ---- the calls of all solvers in a comparison, in physical units -----------------------------------------------
    def adapt(
        self, support: Tensor | None = None, xi: Any = None, generator: torch.Generator | None = None
    ) -> dict[str, Tensor]:
        """What is known of the environments of B rows: parameters xi (B,P), or by name.  It reads no trajectories."""
        if xi is None:
            raise ParameterError("This model is told parameters: adapt needs xi (B,P); trajectories do not replace it.")
        return {"xi": request.parameters(self.problem, xi, {}, None)}

    def rollout(
        self, u_hist: Any, state: dict[str, Tensor], n_frames: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """The next frames (B,n_frames,C,*grid) after the first H of a trajectory (B,H,C,*grid); `adapt` gives state.

        n_frames may be 0, as for all solvers.
        """
        if not isinstance(state, Mapping) or state.get("xi") is None:
            raise ParameterError(f"rollout needs the state that adapt returns; got {type(state).__name__} without xi.")
        u = trajectories(self.problem, u_hist)
        if as_count(n_frames) == 0:
            return request.match_rows(self.problem, u, state["xi"])[0][:, :0]
        n_used = min(u.shape[1], 2 if self.surrogate.is_second_order else 1)
        t0 = float(self.problem.times[0]) + self.surrogate.conditioner.frame_gap * (u.shape[1] - n_used)
        return self.forecast(u[:, -n_used:], state["xi"], n_frames=n_frames, t0=t0).new

    def encode(self, u: Any) -> Tensor:
        """Latent states q (B,T,N,D) of trajectories (B,T,C,*grid), each frame for itself.

        A model for fields of size 1 sees every frame divided by its own rms, so q does not tell how frames grow.
        """
        model, fields = self.surrogate, trajectories(self.problem, u)
        with torch.no_grad(), full_precision(self.device), without_new_code(self.device):
            frames = fields.to(self.device).flatten(0, 1)[:, None]  # (B T,1,C,*grid)
            size, _ = model.sized(frames, frames.new_zeros(len(frames), len(self.problem.parameters)))
            return model.encode(model.normalise(frames / size)).unflatten(0, fields.shape[:2])[:, :, 0]

    def support(
        self, u: Tensor, again: Tensor, xi: Tensor, n_frames: int, has_own_forcing: bool = False
    ) -> Support:
        """Whether parameters (B,P), length and observed frames (B,H,C,*grid) are like the training data's.

        again: the frames encoded and decoded, `Forecast.reconstruction`
        """
        u, again, xi = u.detach(), again.detach(), xi.detach()
        model, statistics = self.surrogate, self.surrogate.statistics
        named, declared = self.problem.named(xi), self.problem.parameters
        found = judge(named, statistics.ranges, n_frames, self.n_frames, has_own_forcing, declared)
        size, unit = model.sized(u, xi)
        if statistics.unit_ranges:
            more = stronger(self.problem.named(unit), statistics.unit_ranges, found.parameters)
            found = replace(found, parameters=(*found.parameters, *more))
        size = size * statistics.channel_rms(self.problem.ndim, u.device)
        return replace(found, unlike=unlike(u / size, again / size))

    def _checked_frames(self, n_frames: int | None, n_observed: int) -> int:
        n, most = as_count(self.n_frames - n_observed if n_frames is None else n_frames), MAX_LENGTHS * self.n_frames
        if n is None or not 1 <= n <= most:
            told = f"a whole number from 1 to {most:,}, which is {MAX_LENGTHS} times the length of the training data"
            raise ParameterError(f"n_frames counts new frames and must be {told}; got {n_frames!r}.")
        return n

    def pieces(self, n_rows: int, n_frames: int) -> list[slice]:
        """Rows in pieces whose latents fit into the memory meant for them; on a CPU one for each core at least."""
        config, n_tokens = self.surrogate.config, self.surrogate.patches.n_tokens
        row = 4 * n_tokens * (3 * n_frames * config.encoder.width + 24 * config.field.width)
        size = max(1, int(_memory(self.device) / row))
        if self.device.type == "cpu":
            size = min(size, math.ceil(n_rows / torch.get_num_threads()))
        return [slice(begin, min(begin + size, n_rows)) for begin in range(0, n_rows, size)]

    def _run(self, u: Tensor, xi: Tensor, n_new: int, t0: float, forcing: ForcingField | None) -> tuple[Tensor, Tensor]:
        """Decoded frames (b,H+n,C,*grid) where u lives, and the first bad frame of each row (b,), H+n if none is."""
        model, home = self.surrogate, u.device
        u = u.to(self.device)
        size, xi = model.sized(u, xi.to(self.device))
        drive = model.drive(xi, t0, forcing)
        fractions = model.finer_steps(xi) if self.takes_finer_steps else None
        q0 = model.encode(model.normalise(u / size))  # (b,H,N,D)
        q = model.rollout(q0, drive, n_new, fractions, self.is_quick)  # (b,H+n,N,D)
        decoded = self._decode(q)  # normalised
        gone = _bad_frames(q, decoded, u.shape[1]).long().cummax(1).values.bool()  # and all that follow, (b,H+n)
        fields = size * model.denormalise(decoded)
        fields = fields.masked_fill(gone.reshape(*gone.shape, *[1] * (u.ndim - 2)), torch.nan)
        return fields.to(home), (~gone).sum(1).cpu()

    def _decode(self, q: Tensor) -> Tensor:
        """A few frames at a time: the maps inside a decoder are much larger than what goes in and out."""
        model = self.surrogate
        frame = 4 * N_LIVE * max(model.config.decoder.widths) * math.prod(self.problem.grid)
        size = max(1, int(_memory(self.device) / (frame * len(q))))
        return torch.cat([model.decode(part) for part in q.split(size, 1)], 1)


def load(path: str | os.PathLike[str], device: str | torch.device = "auto") -> Forecaster:
    """Our model in a run folder or a model folder, or one that comes with the package, by its name."""
    folder, where = find_model(path), pick_device(device)
    surrogate, details = load_surrogate(folder, where)
    forecaster = Forecaster(surrogate, details, where, folder)
    forecaster.bands = read_bands(folder, details["weights_sha256"])
    return forecaster


def _bad_frames(q: Tensor, decoded: Tensor, n_observed: int) -> Tensor:
    """Which new frames (b,H+n) are not finite, or far from anything that was observed or trained on."""
    size = q.float().square().mean((2, 3)).sqrt()  # (b,H+n)
    bound = LATENT_GROWTH * size[:, :n_observed].amax(1, keepdim=True)
    largest = decoded.abs().flatten(2).amax(2)  # (b,H+n); NaN compares as False below
    bad = ~((size <= bound) & (largest <= FIELD_SPREADS))
    bad[:, :n_observed] = False
    return bad


def _checked_time(t0: float) -> float:
    try:
        value = float(t0)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ParameterError(f"t0 must be one finite time; got {t0!r}.")
    return value


def _memory(device: torch.device) -> float:
    return MEMORY.get(device.type, MEMORY["cpu"])
