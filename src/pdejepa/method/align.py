"""Stage 2: a small residual projector bends the latent space until trajectories turn as the physical ones do.

    q = z + G(z)        L_align = L_dyn + w_geo L_geo + w_anchor L_anchor

An auxiliary block-causal predictor of the next change, told the parameters, keeps q predictable; it is thrown away
afterwards.  The encoder is frozen, so z of the whole data set is computed once.
Letters: B trajectories, T frames, N tokens, D width.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn

from pdejepa.method.latents import Kept, Latents, latents_of
from pdejepa.method.losses import angle_error, loss_anchor, loss_dyn, loss_geo, turning_angle
from pdejepa.method.method_stage import MethodStage
from pdejepa.method.run_config import RunConfig
from pdejepa.models.causal_predictor import CausalPredictor
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.stage import Batch, Context
from pdejepa.training.training_data import TrainingData


class Align(MethodStage):
    name = "align"

    def __init__(self, config: RunConfig, data: TrainingData, model: Surrogate, context: Context) -> None:
        super().__init__(config, data, model, context)
        self.options = config.align
        sizes = config.model
        self.causal_predictor = CausalPredictor(
            sizes.causal_predictor, sizes.encoder, model.patches, data.n_frames, model.conditioner.n_conditions
        )
        self.to(context.device)

    @cached_property
    def z(self) -> dict[str, Latents]:
        """Frame-wise features of both splits; made when they are first needed.

        A short stage, which sees less than half of train, encodes what it sees.
        """
        if 2 * self.settings.budget.steps * self.settings.batch < self.data.n("train") and self.settings.budget.steps:
            kept: Kept = {}
            return latents_of("z", self.model, self.data, None, kept)
        return self.latents("z")

    def trained(self) -> dict[str, nn.Module]:
        assert self.model.projector is not None
        return {"projector": self.model.projector, "causal_predictor": self.causal_predictor}

    def batch(self, step: int, n_steps: int) -> Batch:
        rows, frames = self.rows(step), self._window(step)
        z = self.z["train"].take(rows, frames)  # (B,T,N,D)
        return self._part(z, self.data.fields["train"][rows][:, frames], self.data.xi["train"][rows], frames.start)

    def _part(self, z: Tensor, u: Tensor, xi: Tensor, first: int) -> Batch:
        """Trajectories z (B,T,N,D), u (B,T,C,*grid) that begin at frame `first`, and what is known of their physics."""
        return {"z": z, "u": u, "conditions": self._conditions(xi, first, z.shape[1] - 1)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        z, u = batch["z"], batch["u"]
        q = self.model.project(z)
        dq_hat = self.causal_predictor(q[:, :-1], batch["conditions"])
        dyn = loss_dyn(dq_hat, q)
        geo = loss_geo(u, q, self.options.lags, self.options.lag_weights)
        anchor = loss_anchor(q, z)
        total = dyn + self.options.geo_weight * geo + self.options.anchor_weight * anchor
        named = {"loss_dyn": dyn, "loss_geo": geo, "loss_anchor": anchor}
        return {"loss": total, **{name: value.detach() for name, value in named.items()}}

    def _conditions(self, xi: Tensor, first: int, n: int) -> Tensor:
        """What the auxiliary predictor is told at the frames first .. first+n-1: (B,n,P)."""
        frames = torch.arange(first, first + n, device=xi.device, dtype=torch.float32).repeat(len(xi))  # (B*n,)
        vectors = self.model.conditioner.vector(xi.repeat_interleave(n, 0), frames)
        return vectors.unflatten(0, (len(xi), n))

    def _window(self, step: int) -> slice:
        """The frames of this step: all, or a window at a random place, the same for the whole batch."""
        width, n = self.options.window, self.data.n_frames
        if not width or width >= n:
            return slice(0, n)
        place = torch.Generator().manual_seed(self.generator("window", step).initial_seed())
        first = int(torch.randint(n - width + 1, (), generator=place))
        return slice(first, first + width)

    def _windows(self) -> list[slice]:
        """What a score looks at: all frames, or windows at the beginning, in the middle and at the end."""
        width, n = self.options.window, self.data.n_frames
        if not width or width >= n:
            return [slice(0, n)]
        return [slice(first, first + width) for first in (0, (n - width) // 2, n - width)]

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """The total loss on valid, and how the latent trajectories turn before (z) and after (q) projection."""
        totals: dict[str, float] = {}
        fields, xi = self.data.fields["valid"], self.data.xi["valid"]
        for rows in self.scored.split(self.settings.batch):
            z, u = self.z["valid"].take(rows), fields[rows]
            q = self.model.project(z)
            parts = [self(self._part(z[:, w], u[:, w], xi[rows], w.start))["loss"] for w in self._windows()]
            values = {
                "score": torch.stack(parts).mean(),
                "angle_u": turning_angle(u).mean(),
                "angle_z": turning_angle(z).mean(),
                "angle_q": turning_angle(q).mean(),
                "angle_error_z": angle_error(u, z),
                "angle_error_q": angle_error(u, q),
                "change": loss_anchor(q, z).sqrt(),
            }
            for name, value in values.items():
                totals[name] = totals.get(name, 0.0) + float(value) * len(u) / len(self.scored)
        return totals
