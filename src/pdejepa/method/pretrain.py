"""Stage 1: masked latent prediction.  The encoder sees part of a clip; a predictor says what a slowly moving copy of
the encoder, the teacher, makes of the rest.

    L = L_JEPA + lambda L_context,   teacher <- m teacher + (1 - m) encoder

Parameters xi are shown to nobody here.  Later stages use the teacher, frame by frame.
Letters: B clips, T frames, C channels, N places (tokens of one frame), K tokens of a list, L levels, D width.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from pdejepa.core.errors import ConfigError
from pdejepa.method.health import MAX_TRAJECTORIES, HealthCheck, judge, too_early
from pdejepa.method.losses import layer_normed, loss_context, loss_jepa
from pdejepa.method.method_stage import MethodStage
from pdejepa.method.run_config import RunConfig
from pdejepa.models.ema import update_ema
from pdejepa.models.jepa_predictor import JepaPredictor
from pdejepa.models.masking import MaskSampler
from pdejepa.models.patches import PatchGrid
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.batches import in_pieces, own_slice
from pdejepa.training.stage import Batch, Context
from pdejepa.training.training_data import TrainingData


class Pretrain(MethodStage):
    name = "pretrain"
    distances: Tensor  # (N,N)

    def __init__(self, config: RunConfig, data: TrainingData, model: Surrogate, context: Context) -> None:
        super().__init__(config, data, model, context)
        self.options = config.pretrain
        if self.options.one_frame_clips % context.world:
            raise ConfigError(
                f"pretrain.one_frame_clips must be a multiple of the {context.world} ranks, "
                f"got {self.options.one_frame_clips}"
            )
        sizes = config.model
        self.online = copy.deepcopy(model.encoder)
        self.sampler = MaskSampler(self.options.mask, model.patches)
        self.jepa_predictor = JepaPredictor(
            sizes.jepa_predictor,
            sizes.encoder,
            model.patches,
            data.n_frames,
            self.sampler.n_types,
            has_context_head=self.options.context_weight > 0,
        )
        self.register_buffer("distances", place_distances(model.patches), persistent=False)
        self.to(context.device)

    def trained(self) -> dict[str, nn.Module]:
        return {"encoder": self.online, "jepa_predictor": self.jepa_predictor}

    def saved(self) -> dict[str, nn.Module]:
        return {**self.trained(), "target_encoder": self.model.encoder}

    def batch(self, step: int, n_steps: int) -> Batch:
        u = self._clips(step)
        return {"u": u, **self._masks(u, ("mask", step), self.context)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        masked, context = self.losses(batch)
        loss = masked + self.options.context_weight * context
        return {"loss": loss, "loss_jepa": masked.detach(), "loss_context": context.detach()}

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mean over the mask kinds of the loss on masked and on visible tokens of the clips u (B,T,C,*grid)."""
        u = batch["u"]
        width, has_levels = self.config.model.encoder.width, self.config.model.encoder.n_levels > 1
        with torch.no_grad():
            target = layer_normed(self.model.encoder(u, with_levels=has_levels), width)  # (B,T*N,L*D)
        masked, context = [], [u.new_zeros(())]
        for kind in range(self.sampler.n_types):
            context_idx, target_idx = batch[f"context_{kind}"], batch[f"target_{kind}"]
            seen = self.online(u, context_idx, with_levels=has_levels)  # (B,K,L*D)
            predicted, again = self.jepa_predictor(seen, context_idx, target_idx, kind)
            masked.append(loss_jepa(predicted, _gather(target, target_idx)))
            if again is not None:
                distance = self._distance(context_idx, target_idx)
                context.append(loss_context(again, _gather(target, context_idx), distance))
        return torch.stack(masked).mean(), torch.stack(context).sum() / len(masked)

    def after_update(self, step: int, n_steps: int) -> None:
        update_ema(self.model.encoder, self.online, self.options.ema.momentum(step, n_steps))

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """The loss on valid under fixed masks, and the health of the teacher's features."""
        fields = self.data.fields["valid"][self.scored]
        total, n = fields.new_zeros(()), 0
        for part in in_pieces(len(fields), self.settings.batch):
            u = fields[part]
            alone = Context(self.context.device)  # every rank scores all of them
            masks = self._masks(u, ("valid", part.start), alone)
            masked, _ = self.losses({"u": u, **masks})
            total, n = total + masked.float() * len(u), n + len(u)
        return {"score": float(total / n), **self.health()}

    def describe(self, scores: dict[str, float], share: float) -> str:
        is_early = too_early(share, self.settings.schedule.warmup)
        return "" if is_early else f"encoder {judge(scores, self.config.model.encoder.width)}"

    def health(self) -> dict[str, float]:
        u, xi = (values["valid"][:MAX_TRAJECTORIES] for values in (self.data.fields, self.data.xi))
        return HealthCheck(self.model.encoder, self.model.patches).measure(u, xi, self.generator("health"))

    # ---- pieces ----------------------------------------------------------------------------------------------
    def _is_one_frame(self, step: int) -> bool:
        every = self.options.one_frame_every
        return every > 0 and step % every == every - 1

    def _clips(self, step: int) -> Tensor:
        """Whole trajectories, or now and then single frames (one-frame clips) of other trajectories."""
        fields = self.data.fields["train"]
        if not self._is_one_frame(step):
            return fields[self.rows(step)]
        n = self.options.one_frame_clips or self.settings.batch
        draws = self.generator("frames", step)
        rows = torch.randint(len(fields), (n,), generator=draws, device=self.context.device)
        frames = torch.randint(fields.shape[1], (n,), generator=draws, device=self.context.device)
        return fields[self.own(rows), self.own(frames)][:, None]  # (n,1,C,*grid)

    def _masks(self, u: Tensor, words: tuple[object, ...], context: Context) -> Batch:
        """Token numbers `context_KIND` and `target_KIND` (B,K) of one rank's clips u.

        They are drawn from `words` for the whole global batch, so that the number of ranks changes nothing.
        """
        masks = {}
        for kind in range(self.sampler.n_types):
            pair = self.sampler.sample(kind, len(u) * context.world, u.shape[1], self.generator(*words, kind))
            for name, numbers in zip(("context", "target"), pair, strict=True):
                masks[f"{name}_{kind}"] = own_slice(numbers, context.rank, context.world)
        return masks

    def _distance(self, context_idx: Tensor, target_idx: Tensor) -> Tensor:
        """Distance (B,K) of every visible token to the nearest masked place, in tokens, at least 1."""
        n = self.model.patches.n_tokens
        is_target = torch.zeros((len(target_idx), n), dtype=torch.bool, device=target_idx.device)
        is_target.scatter_(1, target_idx % n, True)
        table = self.distances[None].masked_fill(~is_target[:, None], float("inf"))  # (B,N,N)
        return _gather(table.amin(-1)[..., None], context_idx % n)[..., 0].clamp(min=1.0)


def _gather(x: Tensor, idx: Tensor) -> Tensor:
    """Tokens idx (B,K) of x (B,n,D) -> (B,K,D)."""
    return x.gather(1, idx[..., None].expand(-1, -1, x.shape[-1]))


def place_distances(patches: PatchGrid) -> Tensor:
    """Euclidean distance (N,N) between the places of a frame, in tokens, the short way round on periodic axes."""
    square = torch.zeros(())
    grids = torch.meshgrid(*[torch.arange(n, dtype=torch.float32) for n in patches.tokens], indexing="ij")
    for index, length, periodic in zip(grids, patches.tokens, patches.is_periodic, strict=True):
        gap = (index.reshape(-1, 1) - index.reshape(1, -1)).abs()  # (N,N)
        square = square + (torch.minimum(gap, length - gap) if periodic else gap) ** 2
    return square.sqrt()
