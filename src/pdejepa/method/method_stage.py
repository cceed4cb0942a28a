"""What the stages of the method share: the model, the data, who we are among the ranks, and the frozen rest."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn

from pdejepa.method.latents import Kept, Latents, Name, latents_of, storage
from pdejepa.method.run_config import RunConfig
from pdejepa.models.condition import Drive
from pdejepa.models.surrogate import Surrogate
from pdejepa.operators.norms import relative_error
from pdejepa.training.batches import Shuffles, generator, own_slice
from pdejepa.training.on_host import OnHost
from pdejepa.training.stage import Context, Stage
from pdejepa.training.training_data import TrainingData

N_SCORED = 256  # trajectories of valid that a score looks at
TOKENS = 65_536  # of one frame of the trajectories that are advanced together: enough to fill a GPU
DECODED = 32  # trajectories decoded together: fields are larger than latents


class MethodStage(Stage):
    """A stage of the method: moves some parts of one `Surrogate`, with everything else frozen."""

    def __init__(self, config: RunConfig, data: TrainingData, model: Surrogate, context: Context) -> None:
        super().__init__(getattr(config, self.name).training, data.n("train"))
        self.config, self.data, self.context = config, data, context
        self.model = model
        self.kept: Kept = {}
        self.shuffles = Shuffles(self.n_samples, config.seed, self.name, context.device)

    @property
    def fetches(self) -> bool:
        return isinstance(self.data.fields["train"], OnHost)

    # ---- samples ---------------------------------------------------------------------------------------------
    def rows(self, step: int) -> Tensor:
        """This rank's part of the samples of a step."""
        rows = self.shuffles.take(step, self.settings.batch)
        return self.own(rows)

    def trajectories(self, step: int) -> list[int]:
        return [int(row) for row in self.shuffles.take(step, self.settings.batch)]

    def generator(self, *words: object) -> torch.Generator:
        """Random numbers for this stage that depend on the seed and the words only."""
        return generator(self.context.device, self.config.seed, self.name, *words)

    def drive(self, split: str, rows: Tensor | slice) -> Drive:
        return self.model.drive(self.data.xi[split][rows])

    def frozen(self) -> dict[str, nn.Module]:
        """All parts of the model that this stage does not move."""
        moved = {id(module) for module in self.saved().values()}
        return {name: part for name, part in self.model.named_children() if id(part) not in moved}

    # ---- what several stages need ------------------------------------------------------------------------------
    @cached_property
    def scored(self) -> Tensor:
        """The trajectories of valid that scores look at: all, or as many as are worth their time."""
        return evenly(self.data.n("valid"), N_SCORED, self.context.device)

    @property
    def n_together(self) -> int:
        """Trajectories advanced together where no gradients are needed."""
        return max(1, TOKENS // self.model.patches.n_tokens)

    def own(self, drawn: Tensor) -> Tensor:
        """This rank's part of something drawn for the whole global batch."""
        return own_slice(drawn, self.context.rank, self.context.world)

    def latents(self, name: Name) -> dict[str, Latents]:
        """Latents of both splits, kept or made on the fly as the configuration says."""
        return latents_of(name, self.model, self.data, storage(self.config.latents), self.kept)

    def forecast_error(self, u_hat: Tensor, u: Tensor) -> Tensor:
        """Relative error (B,C) of the forecast frames of normalised fields (B,T,C,*grid), in physical units."""
        first = self.config.history
        return relative_error(*(self.model.denormalise(x)[:, first:] for x in (u_hat, u)))


def evenly(n: int, wanted: int, device: torch.device) -> Tensor:
    """Of 0..n-1 all, or `wanted` numbers at equal distances."""
    if wanted >= n:
        return torch.arange(n, device=device)
    return (torch.arange(wanted, device=device) * n) // wanted
