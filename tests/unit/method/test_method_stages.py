"""The stages of the method: all that should learn learns, all that is frozen stays, nothing leaks."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pdejepa.core.errors import ConfigError, Interrupted
from pdejepa.method import latents, method_stage
from pdejepa.method.align import Align
from pdejepa.method.decode import Decode, Reconstruct
from pdejepa.method.dynamics import Dynamics
from pdejepa.method.fitting import fit_latents
from pdejepa.method.method_stage import MethodStage, evenly
from pdejepa.method.polish import Polish
from pdejepa.method.pretrain import Pretrain, place_distances
from pdejepa.method.run_config import EmaConfig
from pdejepa.method.tangents import field_tangents, latent_tangents
from pdejepa.training.batches import Shuffles
from pdejepa.training.loop import run_stage
from pdejepa.training.stage import Context
from pdejepa.training.timing import PROBE_STEPS, TYPICAL
from tests.unit.method.small_run import CPU, build, small_training

ALL: tuple[type[MethodStage], ...] = (Pretrain, Align, Dynamics, Decode, Polish, Reconstruct)
SYSTEMS = ("advection", "burgers", "wave_b", "gray_scott")


def loss(stage: MethodStage, step: int) -> Tensor:
    return stage(stage.batch(step, 10))["loss"]


@torch.no_grad()
def perturb(module: nn.Module, size: float = 0.1) -> None:
    torch.manual_seed(1)
    for parameter in module.parameters():
        parameter.add_(size * torch.randn_like(parameter))


@pytest.mark.parametrize("stage_class", ALL)
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_trained_parameter_gets_gradient_and_no_other(stage_class: type[MethodStage], system: str) -> None:
    stage = build(stage_class, system, *(f"{s.name}.training.batch=32" for s in ALL))
    for module in stage.trained().values():
        perturb(module)
    trained = {id(p) for module in stage.trained().values() for p in module.parameters()}
    for parameter in stage.parameters():
        parameter.requires_grad_(id(parameter) in trained)
    loss(stage, 0).backward()
    lazy = [name for name, p in stage.named_parameters() if id(p) in trained and (p.grad is None or not p.grad.any())]
    assert lazy == []
    assert not any(p.grad is not None for p in stage.parameters() if id(p) not in trained)


@pytest.mark.parametrize(
    ("stage_class", "words", "n_steps", "factor"),
    [
        (Pretrain, ("pretrain.one_frame_every=0", "pretrain.training.batch=8"), 150, 0.6),
        (Align, ("align.training.batch=8",), 150, 0.35),
        (Dynamics, ("dynamics.training.batch=104",), 250, 0.1),
        (Decode, ("decode.training.batch=8", "decode.frames=0"), 200, 0.4),
        (Polish, ("polish.training.batch=8", "polish.first=3", "polish.last=3"), 150, 0.4),
        (Reconstruct, ("reconstruct.training.batch=8", "reconstruct.frames=0"), 200, 0.25),
    ],
)
def test_one_batch_can_be_overfitted(
    stage_class: type[MethodStage], words: tuple[str, ...], n_steps: int, factor: float
) -> None:
    stage = build(stage_class, "advection", *words)
    if stage_class is Decode:
        perturb(stage.model.field, 0.3)  # rollouts that move, or all frames would be one
    before = {name: [p.clone() for p in part.parameters()] for name, part in stage.frozen().items()}
    moved = [p for module in stage.trained().values() for p in module.parameters()]
    for parameter in stage.parameters():
        parameter.requires_grad_(any(parameter is p for p in moved))
    optimiser = torch.optim.AdamW(moved, lr=4e-3, weight_decay=0.0)
    losses = []
    for _ in range(n_steps):
        optimiser.zero_grad()
        value = stage(stage.batch(0, 1000))["loss"]
        value.backward()
        optimiser.step()
        stage.after_update(0, 1000)
        losses.append(float(value.detach()))
    assert losses[-1] < factor * losses[0]
    for name, part in stage.frozen().items():
        assert all(torch.equal(a, b) for a, b in zip(before[name], part.parameters(), strict=True)), name


def test_masked_tokens_do_not_reach_the_student() -> None:
    stage = build(Pretrain)
    u = stage.data.fields["train"][:4].clone()
    masks = stage._masks(u, ("mask", 0), stage.context)
    context_idx, target_idx = masks["context_0"], masks["target_0"]
    seen = stage.online(u, context_idx)
    patches = stage.model.patches
    tokens = patches.split(u).flatten(1, 2).clone()  # (B,T*N,p)
    hidden = torch.ones(tokens.shape[:2], dtype=torch.bool).scatter(1, context_idx, False)
    tokens[hidden] = 99.0
    changed = patches.join(tokens.unflatten(1, (u.shape[1], -1)))
    assert torch.equal(stage.online(changed, context_idx), seen)
    assert not torch.equal(changed, u)
    assert bool(hidden.gather(1, target_idx).all())


def test_latents_hold_no_future() -> None:
    stage = build(Dynamics)
    u = stage.data.fields["train"][:2].clone()
    before = stage.model.encode(u)
    u[:, 5:] = torch.randn_like(u[:, 5:])
    after = stage.model.encode(u)
    torch.testing.assert_close(after[:, :5], before[:, :5], rtol=0, atol=1e-6)
    assert not torch.allclose(after[:, 5:], before[:, 5:], atol=1e-2)


def test_the_projector_starts_as_the_identity() -> None:
    stage = build(Align)
    rows = torch.arange(4)
    z = stage.z["train"].take(rows)
    assert torch.equal(stage.model.project(z), z)
    assert float(stage(stage.batch(0, 10))["loss_anchor"]) == 0.0


def test_decode_never_sees_future_frames() -> None:
    stage = build(Decode)
    other = build(Decode)
    for split in ("train", "valid"):
        other.data.fields[split][:, 1:] = torch.randn_like(other.data.fields[split][:, 1:])
    assert torch.equal(stage.q["train"].take(torch.arange(8)), other.q["train"].take(torch.arange(8)))


def test_rollouts_in_pieces_use_the_parameters_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = build(Decode, "combined", "counts.train=70")
    pieces_of_20 = 20 * stage.model.patches.n_tokens
    monkeypatch.setattr("pdejepa.method.method_stage.TOKENS", pieces_of_20)
    perturb(stage.model.field, 0.3)
    rows = torch.tensor([3, 69])
    q = stage.model.encode(stage.data.fields["train"][rows][:, :1])
    expected = stage.model.rollout(q, stage.drive("train", rows), stage.data.n_frames - 1)
    torch.testing.assert_close(stage.q["train"].take(rows), expected, rtol=1e-3, atol=1e-4)


def test_a_share_of_train_is_rolled_out_and_no_more() -> None:
    part, whole = build(Decode, "combined", "decode.share=0.25", "decode.frames=0"), build(Decode, "combined")
    n = part.data.n("train")
    assert part.n_samples == len(part.q["train"].fields) == round(n / 4)
    assert whole.n_samples == n
    assert part.chosen["train"].tolist() == list(range(0, n, 4))
    batch, rows = part.batch(3, 10), torch.tensor(part.trajectories(3))
    assert torch.equal(batch["u"], part.data.fields["train"][rows])
    torch.testing.assert_close(batch["q"][:, :1], part.model.encode(batch["u"][:, :1]), rtol=1e-3, atol=1e-4)
    with pytest.raises(ConfigError, match="share must be more than 0 and at most 1, got 0"):
        build(Decode, "combined", "decode.share=0")


@pytest.mark.parametrize("stage_class", ALL)
def test_scores_look_at_a_part_of_a_large_valid(
    stage_class: type[MethodStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The score of a part is the one of a smaller valid that holds nothing else."""
    part, small = build(stage_class, "combined"), build(stage_class, "combined")
    n = part.data.n("valid")
    monkeypatch.setattr("pdejepa.method.method_stage.N_SCORED", n // 2)
    rows = torch.arange(0, n, 2)
    small.data.fields["valid"], small.data.xi["valid"] = (x["valid"][rows] for x in (small.data.fields, small.data.xi))
    if isinstance(part, Decode):  # chose when it was built
        part.chosen["valid"], small.chosen["valid"] = rows, torch.arange(len(rows))
    assert part.score()["score"] == pytest.approx(small.score()["score"], rel=1e-5)


@pytest.mark.parametrize("stage_class", [Dynamics, Decode, Polish, Reconstruct])
def test_nothing_is_made_of_splits_that_a_training_does_not_see(stage_class: type[MethodStage]) -> None:
    """A comparison keeps those that are judged beside train and valid; some tests have no valid."""
    stage = build(stage_class, "combined")
    stage.data.fields["test"], stage.data.xi["test"] = (x["valid"].clone() for x in (stage.data.fields, stage.data.xi))
    assert set(stage.q) == {"train", "valid"}  # type: ignore[attr-defined]
    del stage.data.fields["valid"]
    again = stage_class(stage.config, stage.data, stage.model, stage.context)
    assert set(again.q) == {"train"}  # type: ignore[attr-defined]


def test_numbers_at_equal_distances() -> None:
    assert evenly(5, 9, CPU).tolist() == evenly(5, 5, CPU).tolist() == [0, 1, 2, 3, 4]
    assert evenly(10, 4, CPU).tolist() == [0, 2, 5, 7]


@pytest.mark.parametrize("stage_class", ALL)
def test_a_step_is_a_function_of_its_number(stage_class: type[MethodStage]) -> None:
    one, two = build(stage_class), build(stage_class)
    loss(two, 0)
    for step in (4, 2, 5):
        assert torch.equal(loss(one, step), loss(two, step))
    assert not torch.equal(loss(one, 2), loss(one, 4))


@pytest.mark.parametrize("stage_class", ALL)
def test_two_ranks_share_one_batch(stage_class: type[MethodStage]) -> None:
    """The mean of the losses of two halves is the loss of the whole (denominators pooled by hand here)."""
    config, data, model = small_training()
    whole = stage_class(config, data, model, Context(CPU))
    torch.manual_seed(5)
    perturb(whole, 0.05)
    halves = []
    for rank in (0, 1):
        half = stage_class(config, data, model, Context(CPU, rank=rank, world=2))
        half.load_state_dict(whole.state_dict())
        halves.append(half)
    rows = torch.cat([half.rows(3) for half in halves])
    assert torch.equal(rows, whole.rows(3))
    if stage_class in (Pretrain, Decode, Polish, Reconstruct):  # no pooled ratio in these
        parts = torch.stack([loss(half, 3) for half in halves])
        torch.testing.assert_close(parts.mean(), loss(whole, 3), rtol=1e-5, atol=1e-6)


def test_clips_that_ranks_cannot_share_are_refused() -> None:
    config, data, model = small_training("advection", "pretrain.one_frame_clips=8")
    with pytest.raises(ConfigError, match="must be a multiple of the 3 ranks"):
        Pretrain(config, data, model, Context(CPU, world=3))


# ---- parts of stages ---------------------------------------------------------------------------------------------
def test_shuffles_visit_everything_once_per_epoch() -> None:
    shuffles = Shuffles(10, 0, "x", CPU)
    seen = torch.cat([shuffles.take(step, 4) for step in range(5)])
    assert sorted(seen[:10].tolist()) == sorted(seen[10:].tolist()) == list(range(10))
    assert seen[:10].tolist() != seen[10:].tolist()
    assert torch.equal(Shuffles(10, 0, "x", CPU).take(3, 4), shuffles.take(3, 4))
    assert not torch.equal(Shuffles(10, 1, "x", CPU).take(0, 10), shuffles.take(0, 10))
    assert len(shuffles.take(0, 25)) == 25


def test_momentum_rules() -> None:
    assert EmaConfig("constant", end=0.999).momentum(7, 10) == 0.999
    assert EmaConfig("budget", memory=20).momentum(0, 1000) == pytest.approx(0.98)
    slow = EmaConfig("quadratic", start=0.9935, end=0.9995)
    assert slow.momentum(0, 100) == pytest.approx(0.9935)
    assert slow.momentum(100, 100) == pytest.approx(0.9995)
    assert slow.momentum(50, 100) == pytest.approx(1 - 0.006 * 0.25 - 0.0005)


def test_the_teacher_follows_the_student() -> None:
    stage = build(Pretrain, "advection", "pretrain.ema={kind: constant, end: 0.75}")
    old = [p.clone() for p in stage.model.encoder.parameters()]
    perturb(stage.online)
    stage.after_update(0, 10)
    for teacher, student, before in zip(
        stage.model.encoder.parameters(), stage.online.parameters(), old, strict=True
    ):
        torch.testing.assert_close(teacher, 0.75 * before + 0.25 * student)


def test_distances_go_the_short_way_round() -> None:
    stage = build(Pretrain)
    table = place_distances(stage.model.patches)  # 8 places on a ring
    assert table[0].tolist() == [0, 1, 2, 3, 4, 3, 2, 1]
    context, target = torch.tensor([[0, 8 + 3]]), torch.tensor([[5, 8 + 6]])
    assert stage._distance(context, target).tolist() == [[2.0, 2.0]]


def test_one_frame_clips_come_every_few_steps() -> None:
    stage = build(Pretrain, "advection", "pretrain.one_frame_every=3")
    assert [stage._clips(step).shape[1] for step in range(6)] == [14, 14, 1, 14, 14, 1]


def test_windows_of_alignment() -> None:
    stage = build(Align, "advection", "align.window=5")
    windows = [stage._window(step) for step in range(20)]
    assert all(w.stop - w.start == 5 and w.stop <= 14 for w in windows)
    assert len({w.start for w in windows}) > 3
    assert torch.isfinite(loss(stage, 0))


def test_polishing_lengthens_its_rollouts() -> None:
    stage = build(Polish, "advection", "polish.first=2", "polish.last=5")
    lengths = [stage.length(step, 40) for step in range(40)]
    assert lengths[0] == 2
    assert lengths[-1] == 5
    assert [lengths.count(n) for n in (2, 4, 5)] == [14, 13, 13]  # doubling, each length for a third of the steps
    assert sorted(lengths) == lengths
    frames = stage._frames(3, 5)
    assert frames.shape == (4, 6)
    assert int(frames.max()) < 14


def test_vanilla_standardises_the_latents(tmp_path: Path) -> None:
    config, data, model = small_training("advection", "variant=vanilla")
    fit_latents(model, data, tmp_path, {"pretrain": "a"}, True, torch.float32, {})
    stage = Dynamics(config, data, model, Context(CPU))
    q = stage.q["train"].take(torch.arange(8)).flatten(0, 2)
    assert stage.model.projector is None
    torch.testing.assert_close(q.mean(0), torch.zeros(16), atol=1e-4, rtol=0)
    torch.testing.assert_close(q.std(0, unbiased=False), torch.ones(16), atol=1e-3, rtol=0)


def test_the_velocity_scale_is_the_rms_change_and_is_kept(tmp_path: Path) -> None:
    config, data, model = small_training("wave_b")
    fit_latents(model, data, tmp_path, {"align": "a"}, True, torch.float32, {})
    q = Dynamics(config, data, model, Context(CPU)).q["train"].take(torch.arange(8))
    rms = float(q.diff(dim=1).square().mean().sqrt())
    assert model.statistics.velocity_scale == pytest.approx(rms, rel=1e-4)
    assert model.field.velocity_scale == model.statistics.velocity_scale
    perturb(model.encoder)
    fit_latents(model, data, tmp_path, {"align": "a"}, True, torch.float32, {})
    assert model.statistics.velocity_scale == pytest.approx(rms, rel=1e-4)  # the same stages: read, not fitted again
    fit_latents(model, data, tmp_path, {"align": "b"}, True, torch.float32, {})
    assert model.statistics.velocity_scale != pytest.approx(rms, rel=1e-4)


def test_reconstruct_starts_from_a_fresh_decoder() -> None:
    config, data, model = small_training()
    torch.manual_seed(3)
    fresh = Reconstruct(config, data, model, Context(CPU))
    perturb(model.decoder)
    torch.manual_seed(3)
    again = Reconstruct(config, data, model, Context(CPU))
    pairs = zip(fresh.decoder.parameters(), again.decoder.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("dtype", ["float32", "on_the_fly"])
def test_latents_are_float32_even_in_mixed_precision(dtype: str) -> None:
    stage = build(Dynamics, "advection", f"latents={dtype}")
    with torch.autocast("cpu", torch.bfloat16):
        mixed = stage.q["train"].take(torch.arange(4))
    exact = stage.model.encode(stage.data.fields["train"][:4])
    torch.testing.assert_close(mixed, exact, rtol=0, atol=1e-5)


def test_recomputing_changes_nothing_but_memory() -> None:
    plain = build(Polish, "burgers", "polish.first=3")
    again = build(Polish, "burgers", "polish.first=3", "polish.recompute=true")
    for stage in (plain, again):
        perturb(stage.model.field, 0.05)
        loss(stage, 2).backward()
    for a, b in zip(plain.model.field.parameters(), again.model.field.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_the_timed_steps_of_polishing_see_all_lengths() -> None:
    stage = build(Polish)
    lengths = [stage.length(step, PROBE_STEPS) for step in TYPICAL]
    every = [stage.length(step, PROBE_STEPS) for step in range(PROBE_STEPS)]
    assert set(lengths) == set(every)
    assert sum(lengths) / len(lengths) == pytest.approx(sum(every) / PROBE_STEPS, rel=0.05)


def test_denominators_per_frame() -> None:
    stage = build(Dynamics, "advection", "dynamics.denominators=per_frame", "dynamics.training.batch=104")
    q = stage.q["train"].take(torch.arange(8))
    torch.testing.assert_close(stage.changes, q.diff(dim=1).square().mean((0, 2, 3)), rtol=1e-4, atol=1e-8)
    assert float(loss(stage, 0).detach()) == pytest.approx(1.0, abs=0.05)  # a field near zero


def test_unrolled_training() -> None:
    stage = build(Dynamics, "advection", "dynamics.unroll=3")
    assert stage.n_starts == 11
    assert torch.isfinite(loss(stage, 0))
    with pytest.raises(ConfigError, match="too long"):
        build(Dynamics, "advection", "dynamics.unroll=14")


@pytest.mark.parametrize("stage_class", [Align, Dynamics, Decode, Polish, Reconstruct])
def test_a_stop_is_noticed_between_pieces_of_a_split(
    stage_class: type[MethodStage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding or rolling out takes minutes for large data; here every trajectory is a piece."""
    seen: list[Tensor] = []

    def slow(encode: latents.Encode, fields: Tensor) -> Tensor:
        seen.append(fields)
        if len(seen) == 2:
            signal.raise_signal(signal.SIGTERM)
        return encoded(encode, fields)

    encoded = latents._encoded
    monkeypatch.setattr(latents, "_encoded", slow)
    monkeypatch.setattr(latents, "PIECE", {"cpu": 1})
    monkeypatch.setattr(method_stage, "TOKENS", 1)
    with pytest.raises(Interrupted, match=r"^Stopped before the first step"):
        run_stage(build(stage_class), tmp_path, Context(shown="nothing"))
    assert len(seen) == 2


# ---- tangents ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("system", ["advection", "burgers", "gray_scott"])
def test_tangents_are_derivatives(system: str) -> None:
    """J rhs against central differences of the encoder, and the sum over terms against the whole."""
    config, data, model = small_training(system)
    u, xi = data.fields["train"][:2, 3], data.xi["train"][:2]
    frame = torch.tensor([3, 3])
    moved = field_tangents(model, data.system, u, xi, frame, "rhs")[:, 0]
    h = 2e-3 / float(moved.abs().max())
    difference = (model.encode((u + h * moved)[:, None]) - model.encode((u - h * moved)[:, None]))[:, 0] / (2 * h)
    exact = latent_tangents(model, data.system, u, xi, frame, "rhs")[:, 0]
    assert float((exact - difference).detach().norm() / exact.detach().norm()) < 1e-2
    assert config.variant == "physics"


def test_the_tangent_of_a_frame_is_close_to_the_next_change() -> None:
    """Per frame and normalised: for slow advection the field tangent predicts the next difference."""
    config, data, model = small_training("advection")
    slow = dataclasses.replace(data.system)
    xi = slow.xi(speed=0.01)
    u0, _ = slow.sample("train", 0)
    truth = slow.solve(u0, xi, times=[0.0, float(slow.times[1] - slow.times[0])])
    frames: Tensor = model.normalise(truth.as_subclass(Tensor).float())
    tangent = field_tangents(model, slow, frames[:, 0], xi, torch.tensor([0]), "rhs")[:, 0]
    change = frames[:, 1] - frames[:, 0]
    assert float((tangent - change).norm() / change.norm()) < 0.05
    assert config.system == "advection"


@pytest.mark.parametrize("words", [("dynamics.tangent_weight=0.1",), ("dynamics.response_weight=0.1",)])
@pytest.mark.parametrize("system", ["advection", "burgers", "gray_scott"])
def test_supervision_by_the_equation(system: str, words: tuple[str, ...]) -> None:
    stage = build(Dynamics, system, *words)
    metrics = stage(stage.batch(0, 10))
    extra = metrics["loss_tangent" if "tangent" in words[0] else "loss_response"]
    assert 0 < float(extra) < 10
    metrics["loss"].backward()


def test_supervision_needs_a_first_order_system() -> None:
    with pytest.raises(ConfigError, match="first-order"):
        build(Dynamics, "wave_b", "dynamics.tangent_weight=0.1")
    with pytest.raises(ConfigError, match="variant physics"):
        build(Dynamics, "advection", "dynamics.response_weight=0.1", "variant=geo")
