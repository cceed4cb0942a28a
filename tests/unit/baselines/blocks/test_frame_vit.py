"""The next-frame transformer and the two solvers on it: sizes, causality, caches, contexts and fitted tokens."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from pdejepa.baselines.blocks.frame_vit import FrameVit, sizes
from pdejepa.baselines.cls_vit import ClsVit, ClsVitConfig
from pdejepa.baselines.vit_in_context import VitInContext
from pdejepa.core.errors import ConfigError
from tests.unit.baselines.token_solvers import count, on_meta, rough, shaken, task_of


def trunk(name: str, n_condition: int = 0) -> tuple[FrameVit, Tensor]:
    """A tiny transformer and two trajectories of four frames."""
    n_points = 64 if name == "combined" else 0
    task = task_of(name, n_points)
    torch.manual_seed(0)
    return shaken(FrameVit(sizes("tiny", task), task, n_condition)), rough(name, 2, 4, n_points)


@pytest.mark.parametrize("name", ["advection", "gray_scott", "vorticity"])
def test_sizes(name: str) -> None:
    context, token = on_meta(VitInContext, name), on_meta(ClsVit, name)
    assert round(count(context.trunk.blocks) / 1e6, 1) == 15.7
    assert count(context) == count(context.trunk) + 512  # the mark of the context
    assert count(token) == count(context.trunk) + 6 * 512  # one token for each of six environments


@pytest.mark.parametrize(("name", "n_read"), [("combined", 14), ("gray_scott", 10), ("heat", 13), ("vorticity", 10)])
def test_fast_reads_ten_frames_of_the_context_or_more(name: str, n_read: int) -> None:
    task = task_of(name)
    every = VitInContext.recipe("fast", task).model.every
    assert len(range(0, task.n_frames, every)) == n_read


@pytest.mark.parametrize("name", ["combined", "gray_scott"])
@torch.no_grad()
def test_no_frame_sees_the_future(name: str) -> None:
    vit, u = trunk(name)
    prefix = torch.randn(2, 3, 24)
    before = vit(u, prefix)
    changed = u.clone()
    changed[:, 2] += 1.0
    after = vit(changed, prefix)
    torch.testing.assert_close(after[:, :2], before[:, :2])
    assert all(not torch.allclose(after[:, t], before[:, t]) for t in (2, 3))
    assert not torch.allclose(vit(u, prefix + 1.0)[:, 0], before[:, 0])


@pytest.mark.parametrize("name", ["combined", "gray_scott"])
@torch.no_grad()
def test_rollouts_with_kept_keys_are_the_plain_ones(name: str) -> None:
    vit, u = trunk(name, n_condition=5)
    prefix = torch.randn(2, 2 * vit.patches.n_tokens, 24)  # two frames, the first of which does not see the second
    told = {"prefix": prefix, "condition": torch.randn(2, 5)}
    rolled = vit.rollout(u[:, :2], 3, **told)
    plain = u[:, :2]
    for _ in range(3):
        plain = torch.cat((plain, vit(plain, **told)[:, -1:]), 1)
    torch.testing.assert_close(rolled, plain[:, 2:], rtol=1e-4, atol=1e-5)


def test_left_out_frames_keep_their_numbers() -> None:
    vit, u = trunk("combined")
    every, whole = vit.tokens(u[:, ::3], every=3), vit.tokens(u)
    torch.testing.assert_close(every, torch.cat((whole[:, :8], whole[:, 24:]), 1))


def test_fast_reads_ten_frames_and_eight_by_eight_tokens() -> None:
    task = task_of("vorticity")
    assert VitInContext.recipe("fast", task).model.every == 3
    assert FrameVit(dataclasses.replace(sizes("fast", task), depth=1, width=32), task).patches.tokens == (8, 8)
    assert sizes("paper", task).patch == 8


def test_fast_takes_a_quarter_of_the_published_rows_at_a_time() -> None:
    recipes = [VitInContext.recipe(name, task_of("combined")) for name in ("paper", "fast")]
    assert [recipe.stages[0].training.batch for recipe in recipes] == [128, 32]


@torch.no_grad()
def test_several_contexts_are_put_in_a_row() -> None:
    task = task_of("combined", 64)
    solver = VitInContext(VitInContext.recipe("tiny", task).model, task)
    support = rough("combined", 2, 14, 64)[None]  # one row, two trajectories
    both = solver.adapt(support)["context"]
    single = [solver.adapt(support[:, k : k + 1])["context"] for k in range(2)]
    assert both.shape == (1, 2 * 3 * 8, 24)  # frames 0, 5 and 10 of each
    torch.testing.assert_close(both, torch.cat(single, 1))


@pytest.mark.parametrize("n_contexts", [1, 2])
@torch.no_grad()
def test_every_frame_of_context_and_target_is_trained_by_the_next_one(n_contexts: int) -> None:
    """By hand: the target behind its context, and the contexts without it, since they do not look at what follows."""
    task = task_of("combined", 64)
    torch.manual_seed(0)
    solver = shaken(VitInContext(VitInContext.recipe("tiny", task).model, task))
    u, support = rough("combined", 2, 14, 64), rough("combined", 2 * n_contexts, 14, 64).unflatten(0, (2, n_contexts))
    context = solver.context(support)
    told = solver.trunk.frames(solver.trunk.run(context, context.shape[1]))  # after frames 0, 5, 10 of each
    pairs = [(solver.trunk(u[:, :-1], context), u[:, 1:])]
    for k in range(n_contexts):
        pairs.append((told[:, 3 * k : 3 * k + 2], support[:, k, 5::5]))
    errors = torch.cat([((a - b).norm(dim=-1) / b.norm(dim=-1)).flatten() for a, b in pairs])
    torch.testing.assert_close(solver.loss("fit", {"u": u, "support": support})["loss"], errors.mean())


@torch.no_grad()
def test_a_context_is_read_in_its_order() -> None:
    task = task_of("combined", 64)
    torch.manual_seed(0)
    solver = shaken(VitInContext(VitInContext.recipe("tiny", task).model, task))
    context = solver.context(rough("combined", 2, 14, 64)[:, None])  # frames 0, 5 and 10, eight tokens each
    changed = context.clone()
    changed[:, 16:] += 1.0
    before, after = (solver.trunk.run(x, 24) for x in (context, changed))
    torch.testing.assert_close(after[:, :16], before[:, :16])
    assert not torch.allclose(after[:, 16:], before[:, 16:])


def cls(injection: str) -> ClsVit:
    task = task_of("combined", 64)
    torch.manual_seed(0)
    return ClsVit(ClsVitConfig(sizes("tiny", task), injection, adapt_steps=20), task)  # type: ignore[arg-type]


@pytest.mark.parametrize("injection", ["attended", "adaln"])
def test_a_token_is_fitted_to_each_row(injection: str) -> None:
    solver, support = shaken(cls(injection)), rough("combined", 2, 5, 64)[:, None]
    code = solver.adapt(support)["code"]
    mean = solver.codes.weight.detach().mean(0).expand(2, -1)
    for row in range(2):
        fitted, unfitted = (solver.error(support[row], c[row : row + 1]).item() for c in (code, mean))
        assert fitted < unfitted
    alone = solver.adapt(support[1:])["code"]
    torch.testing.assert_close(code[1:], alone, rtol=1e-3, atol=1e-4)
    assert all(p.grad is None for p in solver.parameters())


def test_a_modulating_token_is_silent_at_the_start() -> None:
    u = rough("combined", 2, 3, 64)
    for injection, is_silent in (("adaln", True), ("attended", False)):
        solver = cls(injection)
        answers = [solver.rollout(u, {"code": torch.full((2, 24), value)}, 1) for value in (0.0, 1.0)]
        assert torch.equal(*answers) == is_silent


def test_unknown_injection_is_refused() -> None:
    with pytest.raises(ConfigError, match="injection must be attended or adaln, got 'gate'"):
        cls("gate")
