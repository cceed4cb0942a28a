"""Stage 4: the decoder, from tokens back to fields.

`decode` trains it on rollouts of the frozen surrogate, errors included, since that is what it will see in use:

    L_dec = mean over channels of |u_hat - u| / |u|, frames 0 .. T-1 and space together

`reconstruct` trains one on the true q instead: its error e_rec tells how much of the field the latents hold, and
R = e_roll / e_rec how much is lost by forecasting.  It is a side stage; its decoder is not part of the model.
Letters: B trajectories, T frames, C channels, N tokens, D width.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn

from pdejepa.method.latents import Latents, storage
from pdejepa.method.losses import loss_dec
from pdejepa.method.method_stage import DECODED, MethodStage, evenly
from pdejepa.method.run_config import DecodeConfig, RunConfig
from pdejepa.models.decoder import Decoder
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.batches import Shuffles, in_pieces
from pdejepa.training.on_host import Fields, subset
from pdejepa.training.stage import Batch, Context
from pdejepa.training.training_data import TrainingData


class Decode(MethodStage):
    name = "decode"

    def __init__(self, config: RunConfig, data: TrainingData, model: Surrogate, context: Context) -> None:
        super().__init__(config, data, model, context)
        self.options: DecodeConfig = getattr(config, self.name)
        self.decoder = self._decoder()
        self.to(context.device)
        n = data.n("train")
        self.chosen = {"train": evenly(n, max(1, round(self.options.share * n)), context.device)}
        if "valid" in data.fields:
            self.chosen["valid"] = self.scored
        self.n_samples = len(self.chosen["train"])
        self.shuffles = Shuffles(self.n_samples, config.seed, self.name, context.device)

    @cached_property
    def q(self) -> dict[str, Latents]:
        """What the decoder sees of the chosen trajectories; made when it is first needed."""
        return {split: self._latents(split) for split in self.chosen}

    def _decoder(self) -> Decoder:
        return self.model.decoder

    def _latents(self, split: str) -> Latents:
        """Rollouts of all of them; they are always kept, since making one costs a whole forecast."""
        kind, rows = storage(self.config.latents) or torch.bfloat16, self.chosen[split]
        model, xi, observed = self.model, self.data.xi[split][rows], self.config.history
        done = 0

        def roll(u: Tensor) -> Tensor:
            nonlocal done
            drive = model.drive(xi[done : done + len(u)])
            done += len(u)
            return model.rollout(model.encode(u[:, :observed]), drive, u.shape[1] - observed)

        return Latents(self._fields(split), roll, kind, piece=self.n_together)

    def _fields(self, split: str) -> Fields:
        """Values of the chosen trajectories; not a copy if all are chosen."""
        fields, rows = self.data.fields[split], self.chosen[split]
        return fields if len(rows) == len(fields) else subset(fields, rows)

    def trained(self) -> dict[str, nn.Module]:
        return {"decoder": self.decoder}

    def trajectories(self, step: int) -> list[int]:
        return [int(self.chosen["train"][place]) for place in super().trajectories(step)]

    def batch(self, step: int, n_steps: int) -> Batch:
        places = self.rows(step)  # among the chosen
        rows = self.chosen["train"][places]
        n, wanted = self.data.n_frames, self.options.frames
        if not wanted or wanted >= n:
            return {"q": self.q["train"].take(places), "u": self.data.fields["train"][rows]}
        order = torch.rand((self.settings.batch, n), generator=self.generator("frames", step), device=rows.device)
        frames = self.own(order).argsort(1)[:, :wanted]  # (B,wanted)
        return {"q": self.q["train"].take(places, frames), "u": self.data.fields["train"][rows[:, None], frames]}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return {"loss": loss_dec(self.decoder(batch["q"]), batch["u"])}

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """Relative error of the forecast frames of valid, physical units, mean over channels and trajectories."""
        fields, errors = self._fields("valid"), []
        for part in in_pieces(len(fields), DECODED):
            places = torch.arange(part.start, part.stop, device=fields.device)
            errors.append(self.forecast_error(self.decoder(self.q["valid"].take(places)), fields[part]))
        return {"score": float(torch.cat(errors).mean())}


class Reconstruct(Decode):
    name = "reconstruct"

    def _decoder(self) -> Decoder:
        """A new one: whatever the model's decoder has learned from rollouts has no place here."""
        model = self.model
        width, padding = self.config.model.encoder.width, model.problem.padding
        return Decoder(self.config.model.decoder, model.patches, width, len(model.problem.fields), padding)

    def _latents(self, split: str) -> Latents:
        model = self.model
        return Latents(self._fields(split), lambda u: model.lift(model.encode(u)), storage(self.config.latents))
