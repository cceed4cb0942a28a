"""MPP: its size and names, its attention by hand, and its symmetries."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pdejepa.baselines.blocks.avit import (
    Avit,
    AvitConfig,
    FrameNorm,
    SpaceAttention,
    SpaceNorm,
    TimeAttention,
    bucket,
    bucket_choice,
)
from pdejepa.baselines.mpp import Mpp
from pdejepa.core.errors import ConfigError
from tests.unit.baselines.token_solvers import on_meta, rough, shaken, shape_hash, task_of

SMALL = AvitConfig(width=16, depth=2, heads=2, history=4)


def small(**changes: object) -> Avit:
    torch.manual_seed(1)
    return shaken(Avit(AvitConfig(**{**SMALL.__dict__, **changes}), 2, (48, 80), (True, True))).double()


def fields(n_frames: int = 3) -> Tensor:
    return torch.randn((2, n_frames, 2, 48, 80), generator=torch.Generator().manual_seed(5), dtype=torch.float64)


# ---- size and names ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "size"), [("combined", 115.57), ("vorticity", 115.57), ("gray_scott", 115.58)])
def test_size(name: str, size: float) -> None:
    tensors = on_meta(Mpp, name).net.state_dict()  # type: ignore[union-attr]
    assert round(sum(value.numel() for value in tensors.values()) / 1e6, 2) == size  # with the biases without use


def test_names_and_shapes_are_the_published_ones() -> None:
    with torch.device("meta"):
        net = Avit(AvitConfig(), 12, (128, 128), (True, True))
    assert len(net.state_dict()) == 439
    assert shape_hash(net) == "5516883879292792"


def test_frames_are_normed_as_by_pytorch() -> None:
    norm, plain = FrameNorm(6, affine=True), nn.InstanceNorm2d(6, affine=True)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    plain.load_state_dict(norm.state_dict())
    x = torch.randn((3, 6, 4, 2), generator=torch.Generator().manual_seed(1)) + 5
    assert torch.allclose(norm(x), plain(x), atol=1e-5)


def test_the_published_table() -> None:
    recipe = Mpp.recipe("paper", task_of("combined"))
    training = recipe.stages[0].training
    assert training.budget.steps == 500 * 125
    assert round(training.schedule.warmup * training.budget.steps) == 50
    assert (training.optimiser.kind, training.optimiser.lr, training.optimiser.weight_decay) == ("adan", 1.0, 1e-3)
    assert recipe.model.norm == "std"
    assert Mpp.recipe("paper", task_of("gray_scott")).model.norm == "rms"
    assert Mpp.recipe("fast", task_of("combined")).model == recipe.model


# ---- parts by hand -------------------------------------------------------------------------------------------------
def test_buckets() -> None:
    offsets = torch.tensor([0, -1, -7, -8, -16, -31, -32, -99, 1, 7, 8, 16, 99])
    assert bucket(offsets).tolist() == [0, 1, 7, 8, 12, 15, 15, 15, 17, 23, 24, 28, 31]


def test_distances_go_the_short_way_round() -> None:
    found = bucket_choice(6, True).argmax(-1)
    assert found[0].tolist() == [0, 17, 18, 19, 2, 1]  # offset 4 is -2 and 5 is -1; 3 is as far both ways
    assert bucket_choice(6, False).argmax(-1)[0].tolist() == [0, 17, 18, 19, 20, 21]


def test_space_norm_divides_and_keeps_the_mean() -> None:
    x = 3.0 + 2.0 * torch.randn(2, 4, 5, 6, dtype=torch.float64)
    for kind, spread in (("std", x.std((2, 3))), ("rms", x.square().mean((2, 3)).sqrt())):
        norm = SpaceNorm(4, kind).double()  # type: ignore[arg-type]
        with torch.no_grad():
            norm.weight.copy_(torch.arange(1.0, 5.0))
            norm.bias.fill_(99.0)  # it is in the published network, but takes no part
        expected = x / spread[..., None, None] * torch.arange(1.0, 5.0)[:, None, None]
        torch.testing.assert_close(norm(x), expected)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """(n,d) each and (n,n), written out."""
    return torch.softmax(q @ k.T / q.shape[1] ** 0.5 + bias, -1) @ v


def split_by_hand(part: TimeAttention | SpaceAttention, x: Tensor, head: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (n,d,h,v) of one head: channels (head, 3 d)."""
    d = 8
    made = part.input_head(part.norm1(x))[:, 3 * d * head : 3 * d * (head + 1)]
    q, k, v = (made[:, i * d : (i + 1) * d] for i in range(3))
    return part.qnorm(q.movedim(1, -1)).movedim(-1, 1), part.knorm(k.movedim(1, -1)).movedim(-1, 1), v


def test_time_attention_by_hand() -> None:
    part = shaken(TimeAttention(16, 2)).double()
    x, choice = torch.randn(1, 3, 16, 2, 3, dtype=torch.float64), bucket_choice(3, False).double()
    bias = part.rel_pos_bias.relative_attention_bias.weight[choice.argmax(-1)]  # (T,T,K)
    y = torch.zeros(3, 16, 2, 3, dtype=torch.float64)
    for head in range(2):
        q, k, v = split_by_hand(part, x[0], head)
        for i, j in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
            places = (q[:, :, i, j], k[:, :, i, j], v[:, :, i, j])
            y[:, 8 * head : 8 * head + 8, i, j] = plain_attention(*places, bias[..., head])
    expected = x[0] + part.gamma[:, None, None] * part.output_head(part.norm2(y))
    torch.testing.assert_close(part(x, choice, torch.ones((), dtype=torch.float64))[0], expected)


def test_axial_attention_by_hand() -> None:
    part = shaken(SpaceAttention(16, 2, "std")).double()
    x, down, across = (
        torch.randn(1, 16, 4, 3, dtype=torch.float64),
        bucket_choice(4, True).double(),
        bucket_choice(3, False).double(),
    )
    table, y = part.rel_pos_bias.relative_attention_bias.weight, torch.zeros(1, 16, 4, 3, dtype=torch.float64)
    for head in range(2):
        own, (q, k, v) = slice(8 * head, 8 * head + 8), split_by_hand(part, x, head)
        for i in range(4):  # along a row
            line = plain_attention(*(p[0, :, i].T for p in (q, k, v)), table[across.argmax(-1)][..., head])
            y[0, own, i] += line.T / 2
        for j in range(3):  # along a column
            line = plain_attention(*(p[0, :, :, j].T for p in (q, k, v)), table[down.argmax(-1)][..., head])
            y[0, own, :, j] += line.T / 2
    z = x + part.gamma_att[:, None, None] * part.output_head(part.norm2(y))
    z = z + part.gamma_mlp[:, None, None] * part.mlp_norm(part.mlp(z.movedim(1, -1)).movedim(-1, 1))
    one = torch.ones((), dtype=torch.float64)
    torch.testing.assert_close(part(x, across, down, (one, one)), z)


# ---- the whole network ---------------------------------------------------------------------------------------------
def test_a_shift_by_a_patch_moves_the_forecast() -> None:
    """Both axes have an odd number of tokens: with an even one, the far side has a bias of its own for each way."""
    net, u = small(), fields()
    moved = net(u.roll((16, 32), (-2, -1)))
    torch.testing.assert_close(moved, net(u).roll((16, 32), (-2, -1)))
    assert not torch.allclose(moved, net(u))


def test_scale_and_offset_go_through() -> None:
    net, u = small(), fields()
    scale, offset = (torch.tensor(values).double().reshape(1, 1, 2, 1, 1) for values in ([3.0, 0.5], [-2.0, 7.0]))
    expected = net(u) * scale[0] + offset[0]
    torch.testing.assert_close(net(u * scale + offset), expected, rtol=1e-5, atol=1e-5)


def test_the_field_bag_is_a_linear_map_of_the_fields() -> None:
    bag, x = small().space_bag, torch.randn(1, 2, 4, 4, dtype=torch.float64)
    expected = torch.einsum("wc,bcxy->bwxy", bag.weight, x) + bag.bias[:, None, None]
    torch.testing.assert_close(bag(x), expected)


def test_dropped_parts_take_no_part() -> None:
    net, u = small(), fields()
    nothing = net(u, torch.zeros(2, 2, 3, dtype=torch.float64))
    with torch.no_grad():
        for p in net.blocks.parameters():
            p.add_(1.0)
    assert torch.equal(net(u, torch.zeros(2, 2, 3, dtype=torch.float64)), nothing)
    assert not torch.equal(net(u), nothing)


def test_grids_that_are_refused() -> None:
    for plane in ((48, 40), (16, 16)):
        with pytest.raises(ConfigError, match="two or more patches of 16 x 16"):
            Avit(SMALL, 1, plane, (True, True))


# ---- the solver ----------------------------------------------------------------------------------------------------
def tiny(name: str = "combined", n_points: int = 64) -> Mpp:
    task = task_of(name, n_points)
    torch.manual_seed(2)
    return shaken(Mpp(Mpp.recipe("tiny", task).model, task))


def test_histories_of_every_length_are_met() -> None:
    solver = on_meta(Mpp, "combined")  # 14 frames, 16 of history
    lengths = [solver.window("fit", step / 400).n_frames for step in range(400)]
    assert set(lengths) == set(range(3, 15))
    assert lengths[0] == 3 + len(set(lengths)) // 2  # what costs are counted with
    assert sum(lengths) / 400 == pytest.approx((3 + 2 * 8.5) / 3, abs=0.5)
    assert lengths.count(3) / 400 == pytest.approx((1 + 2 / 12) / 3, abs=0.05)  # a third of the steps, and some more


@torch.no_grad()
def test_a_field_at_rest_can_be_moved() -> None:
    """u_t of Wave-2D is zero at the start, and so is its spread in a window that repeats the only known frame."""
    solver, u = tiny("wave_2d", 32), rough("wave_2d", 2, 1, 32)
    u[:, :, 1] = 0.3
    assert float(solver.rollout(u, {}, 2)[:, :, 1].std((2, 3)).min()) > 1e-5


def test_drop_rates_rise_with_depth() -> None:
    solver = tiny()
    assert solver.rates.flatten().tolist() == pytest.approx([0.0, 0.1])
    u = rough("combined", 4, 3, 64)
    batch = {"u": u, "drop": torch.tensor([0.05, 0.15]).reshape(1, 2, 1).expand(4, 2, 3)}
    kept = solver.loss("fit", batch)["loss"]  # nothing is dropped, but the second block counts 1 / 0.9
    keep = torch.tensor([1.0, 1 / 0.9]).reshape(1, 2, 1).expand(4, 2, 3)
    error = (solver.step(u[:, :-1], keep) - u[:, -1]).square().mean(-1) / (u[:, -1].square().mean(-1) + 1e-7)
    torch.testing.assert_close(kept, error.mean())
    dropped = solver.loss("fit", {**batch, "drop": torch.full((4, 2, 3), 0.05)})["loss"]
    assert not torch.allclose(kept, dropped)


def test_a_rollout_reads_its_own_frames_up_to_the_longest_history() -> None:
    solver, u = tiny(), rough("combined", 2, 6, 64)
    frames = solver.rollout(u[:, :2], {}, 4)
    torch.testing.assert_close(frames[:, 0], solver.step(u[:, :2]))
    everything = torch.cat((u[:, :2], frames), 1)
    torch.testing.assert_close(frames[:, 3], solver.step(everything[:, 1:5]))  # four frames, the first is forgotten
    twice = u[:, :1].expand(-1, 2, -1, -1)
    assert torch.equal(solver.rollout(u[:, :1], {}, 2), solver.rollout(twice, {}, 2))  # one frame is repeated
    assert torch.equal(solver.rollout(u, {}, 1), solver.rollout(u[:, -4:], {}, 1))


def test_a_constant_frame_gives_finite_gradients() -> None:
    """Spreads of zero stand in denominators."""
    for kind in ("std", "rms"):
        norm: nn.Module = SpaceNorm(2, kind)  # type: ignore[arg-type]
        x = torch.zeros(1, 2, 3, 3, requires_grad=True)
        norm(x).sum().backward()
        assert x.grad is not None
        assert bool(x.grad.isfinite().all())
