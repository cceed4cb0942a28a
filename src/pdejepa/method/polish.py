"""Polishing, our optional fifth stage: vector field and decoder learn together from fields.

    L = mean over channels of |u_hat - u| / |u| + w_anchor |q_hat - q| / |q|,  u_hat = Dec(rollout of K frames from q_s)

K grows from `first` to `last` over the stage, by doubling, so that late steps see the errors of long forecasts; each
length has an equal share of the steps (of the seconds, where the clock decides: see `training.timing`).  The anchor
keeps latents those of the encoder, from which other analyses and longer forecasts start.  The encoder
and the projector stay frozen; the start s is drawn at random, and is frame 0 whenever K takes the whole trajectory.
Letters: B trajectories, K frames, N tokens, D width.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pdejepa.method.latents import Latents
from pdejepa.method.losses import loss_dec, loss_rollout
from pdejepa.method.method_stage import DECODED, MethodStage
from pdejepa.method.run_config import RunConfig
from pdejepa.models.condition import Drive
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.batches import in_pieces
from pdejepa.training.interrupts import stop_if_asked
from pdejepa.training.stage import Batch, Context
from pdejepa.training.training_data import TrainingData


class Polish(MethodStage):
    name = "polish"
    scores_start = True  # a polished model that is worse than what it began with is not kept

    def __init__(self, config: RunConfig, data: TrainingData, model: Surrogate, context: Context) -> None:
        super().__init__(config, data, model, context)
        self.options = config.polish
        self.to(context.device)
        self.observed = 2 if model.is_second_order and config.history == 2 else 1

    @cached_property
    def q(self) -> dict[str, Latents]:
        """True latents of both splits; made when they are first needed."""
        return self.latents("q")

    def trained(self) -> dict[str, nn.Module]:
        parts = {"field": self.model.field, "decoder": self.model.decoder}
        if self.model.startup is not None and self.observed == 1:
            parts["startup"] = self.model.startup
        return parts

    def length(self, step: int, n_steps: int) -> int:
        """New frames of a rollout at this step."""
        longest = self.data.n_frames - self.observed
        last = min(self.options.last or longest, longest)
        lengths = [min(self.options.first or last, last)]
        while lengths[-1] < last:
            lengths.append(min(2 * lengths[-1], last))
        return lengths[step * len(lengths) // n_steps]

    def batch(self, step: int, n_steps: int) -> Batch:
        rows = self.rows(step)
        frames = self._frames(step, self.length(step, n_steps))  # (B,observed+K)
        wanted = frames if self.options.anchor_weight else frames[:, : self.observed]
        q = self.q["train"].take(rows, wanted)
        u, xi = self.data.fields["train"][rows[:, None], frames], self.data.xi["train"][rows]
        return {"q": q, "u": u, "xi": xi, "start": frames[:, 0].float()}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        q, n_new = batch["q"], batch["u"].shape[1] - self.observed
        q_hat = self._rollout(q[:, : self.observed], self.model.drive(batch["xi"]), batch["start"], n_new)
        loss = loss_dec(self.model.decode(q_hat), batch["u"])
        if not self.options.anchor_weight:
            return {"loss": loss}
        true = self.model.lift(q[:, self.observed :])
        fields, anchor = loss.detach(), loss_rollout(q_hat[:, self.observed :], true)
        loss = loss + self.options.anchor_weight * anchor
        return {"loss": loss, "loss_fields": fields, "loss_anchor": anchor.detach()}

    def _frames(self, step: int, n_new: int) -> Tensor:
        """Frame numbers of every row; start-up heads know frame 0 only, so they always begin there."""
        width = self.observed + n_new
        n_starts = self.data.n_frames - width + 1
        if self.model.startup is not None and self.observed == 1:
            n_starts = 1
        draws = self.generator("start", step)
        start = torch.randint(n_starts, (self.settings.batch,), generator=draws, device=self.context.device)
        return self.own(start)[:, None] + torch.arange(width, device=start.device)

    def _rollout(self, q: Tensor, drive: Drive, start: Tensor, n_new: int) -> Tensor:
        """Like `Surrogate.rollout`, but rows may begin at different frames `start` (B,)."""
        if self.model.is_second_order and self.observed == 1:
            return self.model.rollout(q, drive, n_new)  # no forcing there: the time does not matter
        q = self.model.lift(q)
        state = self.model.state(q[:, -2], q[:, -1]) if self.model.is_second_order else q[:, -1]
        s, frames = start + self.observed - 1, [q]
        if not self.options.recompute:
            new = self.model.advance(state, s, drive, n_new)
            return torch.cat((q, new[..., : q.shape[-1]]), 1)
        for k in range(n_new):
            state = self._next(state, s + k, drive)
            frames.append(state[:, None, :, : q.shape[-1]])  # (B,1,N,D)
        return torch.cat(frames, 1)

    def _next(self, state: Tensor, s: Tensor, drive: Drive) -> Tensor:
        """The state one frame later, computed again in the backward pass."""
        step = lambda y: self.model.advance(y, s, drive, 1)[:, 0]  # noqa: E731
        result: Tensor = checkpoint(step, state, use_reentrant=False, preserve_rng_state=False)  # nothing is drawn
        return result

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """Relative error of the forecast frames of valid, as in stage 4."""
        fields, observed, errors = self.data.fields["valid"], self.config.history, []
        for rows in self.scored.split(self.n_together):
            stop_if_asked()
            q = self.q["valid"].take(rows, slice(0, observed))
            q_hat = self.model.rollout(q, self.drive("valid", rows), self.data.n_frames - observed)
            for part in in_pieces(len(rows), DECODED):
                errors.append(self.forecast_error(self.model.decode(q_hat[part]), fields[rows[part]]))
        return {"score": float(torch.cat(errors).mean())}
