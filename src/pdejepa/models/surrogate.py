"""The whole surrogate: encode one frame, evolve it in latent space under named physics, decode.

    z = E(u)        q = z + G(z)        q(s) by RK4 on dq/ds = F(q; xi)        u = Dec(q)

Variants, all of the same size and with the same integrator:
    physics   structured field on q (the method)             geo      conditional field on q
    vanilla   conditional field on standardised z, no G      direct   q + Delta(q, xi), one network call per frame

Letters: B rows, T frames, H observed frames, C channels, N tokens, D latent width, P parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from dataclasses import field as part  # `field` is a network here
from typing import Literal

import torch
from torch import Tensor, nn

from pdejepa.core.errors import ConfigError
from pdejepa.models.amplitude import at_unit_amplitude
from pdejepa.models.causal_predictor import CausalPredictorConfig
from pdejepa.models.condition import Conditioner, Drive, ForcingField, Statistics, scalar_forcing
from pdejepa.models.decoder import WHOLE_PATCHES, Decoder, DecoderConfig
from pdejepa.models.encoder import Encoder, EncoderConfig
from pdejepa.models.field_config import FieldConfig
from pdejepa.models.integrate import LatentField, integrate
from pdejepa.models.jepa_predictor import JepaPredictorConfig
from pdejepa.models.patches import PatchGrid
from pdejepa.models.projector import Projector, ProjectorConfig
from pdejepa.models.quick_field import quick_field
from pdejepa.models.vector_field import ConditionalField, SecondOrder, StructuredField
from pdejepa.models.waves import LinearWaves, wave_terms
from pdejepa.systems.problem import Problem

Variant = Literal["physics", "geo", "vanilla", "direct"]
MAX_FINER = 8  # times as many steps per frame as in training, at most


@dataclass(frozen=True)
class ModelConfig:
    """All networks of one surrogate."""

    encoder: EncoderConfig = part(default_factory=EncoderConfig)
    jepa_predictor: JepaPredictorConfig = part(default_factory=JepaPredictorConfig)
    projector: ProjectorConfig = part(default_factory=ProjectorConfig)
    causal_predictor: CausalPredictorConfig = part(default_factory=CausalPredictorConfig)
    field: FieldConfig = part(default_factory=FieldConfig)
    decoder: DecoderConfig = part(default_factory=DecoderConfig)

    def __post_init__(self) -> None:
        product = math.prod(self.decoder.scales)
        if product != self.encoder.patch and self.decoder.style not in WHOLE_PATCHES:
            raise ConfigError(
                f"The product of decoder.scales must be encoder.patch = {self.encoder.patch}, got {product} "
                f"from {self.decoder.scales}."
            )


class Surrogate(nn.Module):
    """Encoder, projector, vector field (and start-up head), decoder, with the statistics of the train split.

    history: frames that are observed before the forecast starts.  2 is for second-order systems: the velocity then
    comes from two true frames instead of the start-up head.
    """

    mean: Tensor
    std: Tensor
    latent_mean: Tensor
    latent_std: Tensor

    def __init__(
        self, problem: Problem, config: ModelConfig, variant: Variant, statistics: Statistics, history: int = 1
    ) -> None:
        super().__init__()
        self.problem, self.config, self.variant, self.history = problem, config, variant, history
        self.is_second_order = problem.structure.time_order == 2
        _check(problem, config, history)
        self.patches = PatchGrid(problem.grid, config.encoder.patch, problem.periodic_axes)
        width, n_channels = config.encoder.width, len(problem.fields)
        self.encoder = Encoder(config.encoder, self.patches, n_channels, len(problem.times))
        self.projector = None if variant == "vanilla" else Projector(width, config.projector)
        field = _build_field(problem, config, self.patches, variant)
        self.field = SecondOrder(field, statistics.velocity_scale) if self.is_second_order else field
        self.startup = _build_startup(problem, config, self.patches) if self.is_second_order else None
        self.decoder = Decoder(config.decoder, self.patches, width, n_channels, problem.padding)
        with torch.device("cpu"):  # numbers, not weights: real even if the weights are built on the meta device
            self.set_statistics(statistics)

    # ---- units -----------------------------------------------------------------------------------------------
    def set_statistics(self, statistics: Statistics) -> None:
        """Take over what was fitted on the train split."""
        self.statistics = statistics
        self.conditioner = Conditioner(self.problem, statistics, self.patches, self.config.field)
        if self.is_second_order:
            self.field.velocity_scale = statistics.velocity_scale  # type: ignore[assignment]
        if isinstance(self.field, LinearWaves):
            self.field.set_scales([statistics.coefficients[name][1] for name in wave_terms(self.problem)])
        width = self.config.encoder.width
        place = self.mean.device if hasattr(self, "mean") else None
        shape = (-1, *[1] * self.problem.ndim)
        values = {
            "mean": torch.tensor(statistics.mean).reshape(shape),  # (C,1..)
            "std": torch.tensor(statistics.std).reshape(shape),
            "latent_mean": torch.tensor(statistics.latent_mean or (0.0,) * width),  # (D,)
            "latent_std": torch.tensor(statistics.latent_std or (1.0,) * width),
        }
        for name, value in values.items():
            self.register_buffer(name, value.to(place), persistent=False)

    def normalise(self, u: Tensor) -> Tensor:
        """Physical units -> zero mean and unit spread per channel; u (...,C,*grid)."""
        return (u - self.mean) / self.std

    def denormalise(self, u: Tensor) -> Tensor:
        return u.float() * self.std + self.mean

    def sized(self, u: Tensor, xi: Tensor) -> tuple[Tensor, Tensor]:
        """The size (B,1,1,1..) of frames u (B,T,C,*grid) and the parameters of u / size, if the model is for size 1.

        All else here is about fields and parameters of that size.
        """
        if not self.statistics.unit_ranges:
            return u.new_ones(len(u), *[1] * (u.ndim - 1)), xi
        return at_unit_amplitude(self.problem, u, xi)

    # ---- the four steps of a forecast ------------------------------------------------------------------------
    def project(self, z: Tensor) -> Tensor:
        """q from z: z + G(z), or standardised z in the variant without a projector."""
        if self.projector is None:
            return (z - self.latent_mean) / self.latent_std
        return z + self.projector(z).float()

    def encode(self, u: Tensor) -> Tensor:
        """Normalised fields (B,T,C,*grid) -> q (B,T,N,D), each frame for itself."""
        return self.project(self.encoder.frames(u).float())

    def drive(self, xi: Tensor, t0: float | None = None, forcing: ForcingField | None = None) -> Drive:
        """What parameters xi (B,P) in physical units, and forcing, do to the latent ODE; frame 0 is at time t0."""
        return self.conditioner.drive(xi, t0, forcing)

    def finer_steps(self, xi: Tensor) -> Tensor | None:
        """Steps of a frame (B,n) for parameters outside the training range; None if all rows take those of training.

        A term that is k times as strong makes the latent ODE k times as fast, so rows take about k times as many steps:
        the product of coefficient and step stays what the field was trained with.  A step of 0 changes nothing.
        """
        n = self.config.field.n_substeps
        if self.variant != "physics" or isinstance(self.field, LinearWaves):
            return None
        counts = (n * self.conditioner.strength(xi)).round().clamp(n, n * MAX_FINER)  # (B,)
        if bool((counts == n).all()):
            return None
        order = torch.arange(int(counts.max()), device=xi.device)
        return (order < counts[:, None]).float() / counts[:, None].float()

    def rollout(
        self, q: Tensor, drive: Drive, n_frames: int, fractions: Tensor | None = None, quick: bool = False
    ) -> Tensor:
        """Observed q (B,H,N,D) and n_frames new ones, (B,H+n_frames,N,D); fractions: see `integrate`.

        quick: by the field of `models.quick_field`, where there is one; equal up to rounding.
        """
        if not self.is_second_order:
            q = self.lift(q)
            new = self.advance(q[:, -1], self._frame_time(q, q.shape[1] - 1), drive, n_frames, fractions, quick)
            return torch.cat((q, new), 1)
        if n_frames == 0:
            return q
        if q.shape[1] == 1:
            first = self.first_change(q[:, 0], drive)[:, None]  # (B,1,N,D)
            q, n_frames = torch.cat((q, q + first), 1), n_frames - 1
        state = self.state(q[:, -2], q[:, -1])
        new = self.advance(state, self._frame_time(q, q.shape[1] - 1), drive, n_frames, fractions, quick)
        return torch.cat((q, new[..., : q.shape[-1]]), 1)

    def decode(self, q: Tensor) -> Tensor:
        """q (B,T,N,D) -> normalised fields (B,T,C,*grid)."""
        return self.decoder(q)

    def lift(self, q: Tensor) -> Tensor:
        """Latents as the ODE has them: those of linear waves are lifted to where they are linear."""
        return self.field.lift(q) if isinstance(self.field, LinearWaves) else q

    # ---- pieces ----------------------------------------------------------------------------------------------
    def advance(
        self,
        state: Tensor,
        s: Tensor,
        drive: Drive,
        n_frames: int,
        fractions: Tensor | None = None,
        quick: bool = False,
    ) -> Tensor:
        """States (B,n_frames,N,S) at the frames after the frame times s (B,); fractions, quick: see `rollout`."""
        if n_frames == 0:
            return state[:, None][:, :0]
        config = self.config.field
        field = (quick_field(self.field, drive, state) if quick else None) or self._driven(drive)
        if isinstance(self.field, LinearWaves):
            return self.field(state, drive.r, n_frames)
        if self.variant == "direct":
            return self._jumps(state, s, drive, n_frames)
        length = self.conditioner.frame_gap if config.time_unit == "physical" else 1.0
        return integrate(field, state, s, n_frames, config.integrator, config.n_substeps, length, fractions)

    def _driven(self, drive: Drive) -> LatentField:
        return lambda y, at: self.field(y, at, drive)

    def _jumps(self, state: Tensor, s: Tensor, drive: Drive, n_frames: int) -> Tensor:
        """One network call per frame: q + Delta; with a velocity, v + Delta first and then q + s_v v."""
        frames = []
        for k in range(n_frames):
            change = self.field(state, s + k + 0.5, drive)
            if self.is_second_order:
                q, v = state.chunk(2, -1)
                v = v + change[..., q.shape[-1] :]
                state = torch.cat((q + self.statistics.velocity_scale * v, v), -1)
            else:
                state = state + change
            frames.append(state)
        return torch.stack(frames, 1)  # (B,n_frames,N,S)

    def state(self, before: Tensor, now: Tensor) -> Tensor:
        """The state (q, v) of a second-order system from two frames, (B,N,2D)."""
        return torch.cat((now, (now - before) / self.statistics.velocity_scale), -1)

    def first_change(self, q0: Tensor, drive: Drive) -> Tensor:
        """q_1 - q_0 of a second-order system from its first frame (B,N,D), by the start-up head."""
        assert self.startup is not None
        return self.startup(q0, self._frame_time(q0, 0), drive) * self.statistics.velocity_scale

    @staticmethod
    def _frame_time(like: Tensor, frame: int) -> Tensor:
        return torch.full((len(like),), float(frame), device=like.device)


def _check(problem: Problem, config: ModelConfig, history: int) -> None:
    if problem.structure.time_order == 2 and config.field.time_unit == "physical":
        raise ConfigError(f"{problem.name} is of second order: its velocity is per frame, so field.time_unit is frame.")
    allowed = (1, 2) if problem.structure.time_order == 2 else (1,)
    if history not in allowed:
        raise ConfigError(f"{problem.name} takes {' or '.join(map(str, allowed))} observed frames; got {history}.")


def _build_field(problem: Problem, config: ModelConfig, patches: PatchGrid, variant: Variant) -> nn.Module:
    structure, width = problem.structure, config.encoder.width
    if config.field.integrator == "exact":
        if variant != "physics":
            raise ConfigError(f"field.integrator=exact solves the variant physics exactly; the variant is {variant}.")
        return LinearWaves(config.field, patches, width, problem)
    n_forcing = 0 if structure.forcing == "none" else len(problem.fields) * patches.patch**problem.ndim
    state_width = 2 * width if structure.time_order == 2 else width
    scalars = scalar_forcing(problem, config.field)
    n_terms, n_forcing = len(structure.terms) + len(scalars), 0 if scalars else n_forcing
    sizes = (config.field, patches, width, n_terms, structure.has_shared, n_forcing, state_width)
    if variant == "physics":
        return StructuredField(*sizes)
    if config.field.film:
        raise ConfigError(f"field.film is an extra term of the variant physics; the variant is {variant}.")
    with torch.device("meta"):  # only sizes are needed: all variants are equally large, the missing projector included
        n_parameters = sum(p.numel() for p in StructuredField(*sizes).parameters())
        if variant == "vanilla":
            n_parameters += sum(p.numel() for p in Projector(width, config.projector).parameters())
    return ConditionalField(config.field, patches, width, n_terms, n_forcing, state_width, n_parameters)


def _build_startup(problem: Problem, config: ModelConfig, patches: PatchGrid) -> nn.Module:
    n_terms = len(problem.structure.terms)
    depth = config.field.startup_depth
    return StructuredField(config.field, patches, config.encoder.width, n_terms, has_shared=True, depth=depth)
