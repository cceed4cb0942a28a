"""ENMA: its size, rounds and flows by hand, and what may see what."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from pdejepa.baselines.blocks.flow_matching import FlowHead, filled_per_round, integrate
from pdejepa.baselines.enma import Enma, masked_tokens
from tests.unit.baselines.token_solvers import count, on_meta, rough, shaken, task_of
from tests.unit.baselines.values import gradients_without_values


@pytest.mark.parametrize(
    ("name", "n_tokens"), [("combined", 16), ("gray_scott", 64), ("heterns", 256), ("vorticity", 256)]
)
def test_size(name: str, n_tokens: int) -> None:
    solver = on_meta(Enma, name)
    dynamics = solver.dynamics
    trunk = sum(count(block) for part in (dynamics.temporal, dynamics.spatial) for block in part.blocks)
    assert round(trunk / 1e6, 1) == 50.3
    assert round(count(dynamics.head) / 1e6, 1) in (5.1, 5.2)
    assert count(dynamics) / 1e6 == pytest.approx(55.5, abs=0.2)
    assert dynamics.n_tokens == n_tokens


def tiny(name: str = "gray_scott", **changes: object) -> Enma:
    task = task_of(name)
    config = dataclasses.replace(Enma.recipe("tiny", task).model, **changes)
    torch.manual_seed(0)
    return shaken(Enma(config, task))


def test_rounds_by_hand() -> None:
    # 16 cos(15, 30, .. 75 degrees) = 15.5, 13.9, 11.3, 8, 4.1: so many stay masked
    assert filled_per_round(16, 6) == [1, 2, 2, 3, 4, 4]
    assert filled_per_round(4, 6) == [1, 1, 1, 1]
    assert filled_per_round(5, 1) == [5]
    for n, rounds in ((256, 16), (64, 16), (7, 3)):
        counts = filled_per_round(n, rounds)
        assert sum(counts) == n
        assert min(counts) >= 1
        assert len(counts) <= rounds


def test_between_three_quarters_and_all_are_masked() -> None:
    share = torch.tensor([0.0, 0.1, 0.5, 0.99])
    assert masked_tokens(share, 16).tolist() == [12, 13, 14, 16]


class _Linear(nn.Module):
    """v = a z + b."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.a, self.b = a, b

    def forward(self, z: Tensor, r: Tensor, c: Tensor) -> Tensor:
        return self.a * z + self.b


def test_midpoint_steps() -> None:
    z, c = torch.randn(2, 3, 4), torch.zeros(2, 3, 1)
    torch.testing.assert_close(integrate(_Linear(0.0, 0.7), z, c, 10), z + 0.7)  # type: ignore[arg-type]
    factor = (1 + 0.1 + 0.005) ** 10
    torch.testing.assert_close(integrate(_Linear(1.0, 0.0), z, c, 10), factor * z)  # type: ignore[arg-type]


def test_the_head_sees_one_token_at_a_time() -> None:
    head = shaken(FlowHead(4, 6, 16, 2))
    z, r, c = torch.randn(2, 5, 4), torch.rand(2, 5), torch.randn(2, 5, 6)
    together = head(z, r, c)
    torch.testing.assert_close(head(z[:, 2], r[:, 2], c[:, 2]), together[:, 2])
    assert not torch.allclose(head(z, r + 0.2, c), together)
    head.reset()
    assert not head(z, r, c).any()


@torch.no_grad()
def test_a_history_does_not_know_its_own_frame() -> None:
    dynamics = tiny().dynamics
    context, z = torch.randn(2, 4, 16, 4), torch.randn(2, 3, 16, 4)
    h = dynamics.histories(context, z)
    assert h.shape == (2, 4, 16, 24)
    changed = z.clone()
    changed[:, 1, 5] += 1.0
    after = dynamics.histories(context, changed)
    torch.testing.assert_close(h[:, :2], after[:, :2])  # after none and one
    assert bool(((h[:, 2:] - after[:, 2:]).abs().amax(-1) > 0).all())  # every token of the later frames
    other = context.clone()
    other[:, 0] += 1.0
    assert not torch.allclose(dynamics.histories(other, z)[:, 0], h[:, 0])


@torch.no_grad()
def test_masked_tokens_are_hidden_and_others_are_seen() -> None:
    dynamics = tiny().dynamics
    h, z = torch.randn(2, 16, 24), torch.randn(2, 16, 4)
    is_masked = torch.zeros(2, 16, dtype=torch.bool)
    is_masked[:, 3:9] = True
    c = dynamics.conditions(h, z, is_masked)
    hidden, seen = z.clone(), z.clone()
    hidden[:, 4] += 1.0
    seen[:, 12] += 1.0
    torch.testing.assert_close(dynamics.conditions(h, hidden, is_masked), c)
    assert not torch.allclose(dynamics.conditions(h, seen, is_masked)[:, 4], c[:, 4])


def test_the_loss_by_hand() -> None:
    solver = tiny()
    u, support = rough("gray_scott", 2, 3), rough("gray_scott", 2, 6).flip(0)[:, None]
    batch = {"u": u, "support": support}
    batch |= solver.draws("dynamics", batch, torch.Generator().manual_seed(0))
    z, context = solver.encode(u), solver.encode(support[:, 0, :4])
    total, n = torch.zeros(()), 0
    for b in range(2):
        h = solver.dynamics.histories(context[b : b + 1], z[b : b + 1, :2])[0]
        for t in range(3):
            share = 0.75 + 0.25 * float(batch["share_masked"][b, t])
            chosen = batch["order"][b, t].sort().indices[: int(-(-share * 16 // 1))]
            is_masked = torch.zeros(1, 16, dtype=torch.bool).index_fill(1, chosen, True)
            c = solver.dynamics.conditions(h[t : t + 1], z[b : b + 1, t], is_masked)[0, chosen]
            r, eps = batch["time"][b, t, chosen], batch["noise"][b, t, chosen]
            token = z[b, t, chosen]
            v = solver.dynamics.head(eps + r[:, None] * (token - eps), r, c)
            total, n = total + (v - (token - eps)).square().mean(1).sum(), n + len(chosen)
    torch.testing.assert_close(solver.loss("dynamics", batch)["loss"], total / n, rtol=1e-4, atol=1e-5)


def test_divergence_of_the_autoencoder_by_hand() -> None:
    solver, u = tiny(), rough("gray_scott", 2, 3)
    batch = {"u": u}
    batch |= solver.draws("autoencode", batch, torch.Generator().manual_seed(0))
    mean, log_var = solver.posterior(solver.lift(u))
    normal, unit = torch.distributions.Normal(mean, (0.5 * log_var).exp()), torch.distributions.Normal(0.0, 1.0)
    out = solver.loss("autoencode", batch)
    torch.testing.assert_close(out["kl"], torch.distributions.kl_divergence(normal, unit).mean())
    torch.testing.assert_close(out["loss"], out["error"] + 5e-4 * out["kl"])


def test_recomputing_gives_the_same_gradients() -> None:
    found = []
    for recompute in (False, True):
        solver = tiny(recompute=recompute)
        batch = {"u": rough("gray_scott", 2, 3), "support": rough("gray_scott", 2, 6)[:, None]}
        batch |= solver.draws("dynamics", batch, torch.Generator().manual_seed(0))
        solver.loss("dynamics", batch)["loss"].backward()
        found.append([p.grad for p in solver.dynamics.parameters()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@torch.no_grad()
def test_a_long_rollout_forgets_its_beginning() -> None:
    """The window of tiny has four frames; the seventh frame is still drawn."""
    solver, u = tiny(), rough("gray_scott", 2, 1)
    state = solver.adapt(rough("gray_scott", 2, 6)[:, None])
    out = solver.rollout(u, state, 7, torch.Generator().manual_seed(0))
    assert out.shape == (2, 7, 2, 32, 32)
    assert bool(out.isfinite().all())
    assert not torch.equal(out, solver.rollout(u, state, 7, torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("stage", ["autoencode", "dynamics"])
def test_a_step_needs_no_values(stage: str) -> None:
    solver = tiny()
    batch = {"u": rough("gray_scott", 2, 3), "support": rough("gray_scott", 2, 6)[:, None]}
    batch |= solver.draws(stage, batch, torch.Generator().manual_seed(0))
    for name, part in solver.named_children():
        part.requires_grad_(name in solver.trained(stage))
    assert gradients_without_values(solver, stage, batch)
