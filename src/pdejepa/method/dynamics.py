"""Stage 3: the latent ODE.  From true q_t the integrator must reach the true q_{t+1}.

    L = |q_hat_{t+1} - q_{t+1}|^2 / |q_{t+1} - q_t|^2         q_hat by RK4 on the (structured) vector field

Options: several steps in a row (`unroll`), and two ways to show the field the PDE itself, through the derivative J of
q with respect to u: F(q; xi) ~ J rhs(u; xi), and D_j(q) ~ J d rhs / d r_j.
Letters: B transitions, K steps, N tokens, D width, S state width.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from pdejepa.core.errors import ConfigError
from pdejepa.method.latents import Latents
from pdejepa.method.losses import loss_step, pooled_ratio
from pdejepa.method.method_stage import MethodStage
from pdejepa.method.run_config import RunConfig
from pdejepa.method.tangents import latent_tangents
from pdejepa.models.condition import Drive
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.batches import Shuffles, in_pieces
from pdejepa.training.interrupts import stop_if_asked
from pdejepa.training.stage import Batch, Context
from pdejepa.training.training_data import TrainingData


class Dynamics(MethodStage):
    name = "dynamics"

    def __init__(self, config: RunConfig, data: TrainingData, model: Surrogate, context: Context) -> None:
        super().__init__(config, data, model, context)
        self.options = config.dynamics
        self.to(context.device)
        self.first = 1 if model.is_second_order else 0  # the first frame that is a state
        self.n_starts = data.n_frames - self.options.unroll - self.first
        self._check()
        self.n_samples = data.n("train") * min(self.options.transitions, self.n_starts)
        self.shuffles = Shuffles(data.n("train") * self.n_starts, config.seed, self.name, context.device)

    @cached_property
    def q(self) -> dict[str, Latents]:
        """Latents of both splits; made when they are first needed."""
        return self.latents("q")

    @cached_property
    def changes(self) -> Tensor:
        """Mean square change of q at every frame of train, (T-1,)."""
        return self.q["train"].mean_square_changes()

    def _check(self) -> None:
        if self.n_starts < 1:
            raise ConfigError(
                f"dynamics.unroll={self.options.unroll} is too long for trajectories of {self.data.n_frames} frames"
            )
        wants = self.options.tangent_weight > 0 or self.options.response_weight > 0
        if wants and (self.model.is_second_order or self.config.model.field.coordinate == "log"):
            raise ConfigError("tangent_weight and response_weight need a first-order system and linear coefficients")
        if wants and self.data.system is None:
            raise ConfigError("tangent_weight and response_weight need the system that made the data, for its equation")
        if self.options.response_weight > 0 and self.config.variant != "physics":
            raise ConfigError("response_weight needs the variant physics: the others have no responses")
        if self.options.tangent_weight > 0 and self.config.variant == "direct":
            raise ConfigError("tangent_weight needs a vector field: the variant direct has none")
        if self.options.denominators == "per_frame" and self.model.is_second_order:
            raise ConfigError("denominators=per_frame is for first-order systems: here errors of q and v are mixed")

    def trained(self) -> dict[str, nn.Module]:
        startup = {} if self.model.startup is None else {"startup": self.model.startup}
        return {"field": self.model.field, **startup}

    def trajectories(self, step: int) -> list[int]:
        return [sample // self.n_starts for sample in super().trajectories(step)]

    def batch(self, step: int, n_steps: int) -> Batch:
        samples, unroll = self.rows(step), self.options.unroll
        rows, frame = samples // self.n_starts, samples % self.n_starts + self.first  # (B,) each
        before = self.first  # a second-order state needs the frame before
        frames = frame[:, None] + torch.arange(-before, unroll + 1, device=frame.device)  # (B,K+1)
        states = self.states(self.q["train"].take(rows, frames))  # (B,K+1,N,S)
        batch = {"states": states, "frame": frame.float(), "xi": self.data.xi["train"][rows]}
        if self.options.denominators == "per_frame":
            batch["weight"] = 1.0 / self.changes[frames[:, before:-1]]
        if self.model.startup is not None:
            batch["first"] = self.q["train"].take(rows, slice(0, 2))
        return {**batch, **self._tangents(rows, frame)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        states, frame = self.model.lift(batch["states"]), batch["frame"]
        drive = self.model.drive(batch["xi"])
        q_hat = self.model.advance(states[:, 0], frame, drive, self.options.unroll)
        loss = loss_step(q_hat, states, batch.get("weight"))
        named = {"loss_step": loss.detach()}
        if "first" in batch:
            startup = self._startup_loss(batch["first"], drive)
            loss, named["loss_startup"] = loss + startup, startup.detach()
        if "rhs" in batch or "responses" in batch:
            extra, more = self._tangent_losses(batch, drive)
            loss, named = loss + extra, {**named, **more}
        return {"loss": loss, **named}

    def states(self, q: Tensor) -> Tensor:
        """Latents (B,K+1,N,D) as states of the ODE; for second-order systems (q, v), one frame fewer."""
        if not self.model.is_second_order:
            return q
        return torch.stack([self.model.state(q[:, k - 1], q[:, k]) for k in range(1, q.shape[1])], 1)

    def _startup_loss(self, q: Tensor, drive: Drive) -> Tensor:
        """The start-up head: q_1 - q_0 from q_0 alone; q (B,2,N,D)."""
        change = q[:, 1] - q[:, 0]
        return pooled_ratio(self.model.first_change(q[:, 0], drive) - change, change)

    def _tangents(self, rows: Tensor, frame: Tensor) -> Batch:
        """What the PDE says the field (`rhs`) and its responses should be at some of the states, if that is wanted."""
        wanted = {"rhs": self.options.tangent_weight, "responses": self.options.response_weight}
        system = self.data.system
        if system is None or not any(wanted.values()):
            return {}
        n = max(1, self.options.tangent_batch // self.context.world)
        u, xi = self.data.fields["train"][rows[:n], frame[:n]], self.data.xi["train"][rows[:n]]
        unit = self.model.conditioner.frame_gap if self.config.model.field.time_unit == "physical" else 1.0
        which: list[Literal["rhs", "responses"]] = ["rhs", "responses"]
        tangents = lambda name: latent_tangents(self.model, system, u, xi, frame[:n], name)  # noqa: E731
        return {name: tangents(name) / unit for name in which if wanted[name]}

    def _tangent_losses(self, batch: Batch, drive: Drive) -> tuple[Tensor, dict[str, Tensor]]:
        n = len(next(batch[name] for name in ("rhs", "responses") if name in batch))
        q, frame = batch["states"][:n, 0], batch["frame"][:n]
        part = Drive(drive.r[:n], self.model.drive(batch["xi"][:n]).forcing)
        total, named = q.new_zeros(()), {}
        if "rhs" in batch:
            target = batch["rhs"][:, 0]  # (B,N,D)
            named["loss_tangent"] = pooled_ratio(self.model.field(q, frame, part) - target, target)
            total = total + self.options.tangent_weight * named["loss_tangent"]
        if "responses" in batch:
            responses = self.model.field.parts(q, frame, part)[1]  # type: ignore[operator]
            named["loss_response"] = pooled_ratio(responses - batch["responses"], batch["responses"])  # (B,M,N,D)
            total = total + self.options.response_weight * named["loss_response"]
        return total, {name: value.detach() for name, value in named.items()}

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """Latent error of whole rollouts (selects), and of single steps."""
        sums = torch.zeros(4, dtype=torch.float64, device=self.context.device)
        observed = self.config.history
        for rows in self.scored.split(self.n_together):
            stop_if_asked()
            q = self.q["valid"].take(rows)
            rolled = self.model.rollout(q[:, :observed], self.drive("valid", rows), q.shape[1] - observed)
            q = self.model.lift(q)
            sums[:2] += _squares(rolled[:, observed:], q[:, observed:])
            sums[2:] += self._step_squares(q, rows)
        errors = (sums[::2] / sums[1::2]).sqrt().tolist()
        return {"score": errors[0], "rollout_error": errors[0], "step_error": errors[1]}

    def _step_squares(self, q: Tensor, rows: Tensor) -> Tensor:
        """Squares of the errors of all single steps of some trajectories of valid, and of what they should reach."""
        states = self.states(q)  # (B,K+1,N,S)
        n = states.shape[1] - 1
        time = torch.arange(n, device=q.device, dtype=torch.float32).repeat(len(rows)) + self.first  # (B*K,)
        total = q.new_zeros(2, dtype=torch.float64)
        now, after = states[:, :-1].flatten(0, 1), states[:, 1:].flatten(0, 1)  # (B*K,N,S)
        every = rows.repeat_interleave(n)
        for part in in_pieces(len(now), self.n_together):
            step = self.model.advance(now[part], time[part], self.drive("valid", every[part]), 1)[:, 0]
            total += _squares(step[..., : q.shape[-1]], after[part][..., : q.shape[-1]])
        return total


def _squares(q_hat: Tensor, q: Tensor) -> Tensor:
    """Sums of squares of the error and of q."""
    return torch.stack(((q_hat - q).double().square().sum(), q.double().square().sum()))
