"""Poseidon: its size and names, its parts by hand, and its blocks against another Swin v2."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pdejepa.baselines.baseline import Baseline
from pdejepa.baselines.blocks.scot import Block, ConditionedNorm, Merge, Scot, ScotConfig, Skip, Stage, Unmerge
from pdejepa.baselines.blocks.swin import UNSEEN, WindowAttention, log_offsets, shift_mask
from pdejepa.baselines.poseidon import Poseidon
from pdejepa.baselines.unisolver import UniSolver
from pdejepa.core.errors import ConfigError
from pdejepa.training.batches import generator
from tests.unit.baselines.token_solvers import millions, on_meta, parameters, rough, shaken, shape_hash, task_of

SMALL = ScotConfig((32, 32), 8, 2, n_stages=2, depth=2, n_skip=1, window=4, bias_hidden=8)


def tiny(name: str = "combined", n_points: int = 64) -> Poseidon:
    task = task_of(name, n_points)
    torch.manual_seed(2)
    return shaken(Poseidon(Poseidon.recipe("tiny", task).model, task))


# ---- size and names ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["combined", "vorticity", "gray_scott", "heterns"])
def test_size(name: str) -> None:
    assert round(millions(Poseidon, name), 2) == 20.77


def test_names_and_shapes_are_the_published_ones() -> None:
    for side in (64, 128):  # nothing that depends on windows is stored
        with torch.device("meta"):
            net = Scot(ScotConfig((side, side)), 4, 4)
        assert len(net.state_dict()) == 844
        assert shape_hash(net) == "1e41c790ef3d0b4b"


@pytest.mark.parametrize(
    ("name", "n_in", "side"),
    [
        ("combined", 4, 64),
        ("advection", 2, 64),
        ("burgers", 3, 64),
        ("heat", 3, 64),
        ("gray_scott", 4, 64),
        ("wave_2d", 4, 64),
        ("vorticity", 2, 128),
        ("heterns", 3, 64),
    ],
)
def test_channels_and_planes_are_those_of_the_table(name: str, n_in: int, side: int) -> None:
    solver = on_meta(Poseidon, name)
    assert isinstance(solver, Poseidon)
    assert solver.net.embeddings.patch_embeddings.projection.weight.shape[1] == n_in
    assert solver.config.plane == (side, side)


def test_planes_that_are_refused() -> None:
    for plane in ((48, 48), (64, 40)):
        with pytest.raises(ConfigError, match="power of two"):
            ScotConfig(plane)


# ---- parts by hand -------------------------------------------------------------------------------------------------
def test_offsets_by_hand() -> None:
    table = log_offsets((3, 2))
    assert table.shape == (5, 3, 2)
    assert table[4, 2].tolist() == pytest.approx([1.0566, 1.0566], abs=1e-4)  # log2(9) / 3
    assert table[1, 1].tolist() == pytest.approx([-0.7740, 0.0], abs=1e-4)  # half-way: -log2(5) / 3
    assert torch.equal(log_offsets((1, 1)), torch.zeros(1, 1, 2))


def test_bias_by_hand() -> None:
    part = shaken(WindowAttention(8, 2, (6, 4), (3, 2), (0, 0), 5), 0.5)
    found, table = part.bias(), part.continuous_position_bias_mlp(log_offsets((3, 2)))
    for a, b in torch.cartesian_prod(torch.arange(6), torch.arange(6)).tolist():
        offset = table[a // 2 - b // 2 + 2, a % 2 - b % 2 + 1]
        torch.testing.assert_close(found[:, a, b] + 8, 16 * torch.sigmoid(offset))


def test_mask_by_hand() -> None:
    mask = shift_mask((4, 4), (2, 2), (1, 1)) / UNSEEN
    assert torch.equal(mask[0], torch.zeros(4, 4))  # away from the edges nothing is torn apart
    left_right = torch.tensor([[0.0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    assert torch.equal(mask[1], left_right)
    assert torch.equal(mask[3], 1 - torch.eye(4))  # the corner: four pieces from four corners
    assert torch.equal(shift_mask((4, 2), (2, 2), (1, 0))[0], torch.zeros(4, 4))  # one axis only


def test_conditioned_norm_by_hand() -> None:
    norm = shaken(ConditionedNorm(6), 0.5).double()
    x, time = 2 + torch.randn(3, 2, 2, 6, dtype=torch.float64), torch.tensor([[0.0], [0.5], [1.0]]).double()
    gain = time * norm.weight.weight[:, 0] + norm.weight.bias  # (B,c)
    shift = time * norm.bias.weight[:, 0] + norm.bias.bias
    mean = x.mean(-1, keepdim=True)
    plain = (x - mean) / (x.square().mean(-1, keepdim=True) - mean**2 + 1e-5).sqrt()
    torch.testing.assert_close(norm(x, time), plain * gain[:, None, None] + shift[:, None, None])


def test_merging_takes_the_four_in_their_order() -> None:
    merge, time = Merge(2), torch.zeros(1, 1)
    seen: list[Tensor] = []
    merge.reduction.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    x = torch.arange(16.0).reshape(1, 4, 4, 1).expand(-1, -1, -1, 2)
    merge(x, time)
    assert seen[0].shape == (1, 2, 2, 8)
    assert seen[0][0, 0, 1, ::2].tolist() == [2, 6, 3, 7]  # (0,0), (1,0), (0,1), (1,1) of the upper right square


def test_unmerging_puts_four_tokens_where_one_was() -> None:
    unmerge, time = shaken(Unmerge(4)), torch.zeros(1, 1)
    x = torch.randn(1, 2, 3, 4)
    parts = unmerge.upsample(x[0, 1, 2]).reshape(2, 2, 2)  # row, column, channel
    found = unmerge(x, time)
    assert found.shape == (1, 4, 6, 2)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        expected = unmerge.mixup(unmerge.norm(parts[row, column][None, None, None], time))[0, 0, 0]
        torch.testing.assert_close(found[0, 2 + row, 4 + column], expected)


def test_where_windows_shift() -> None:
    def shifts(side: int, number: int, is_encoder: bool) -> list[int]:
        with torch.device("meta"):
            stage = Stage(ScotConfig((side, side)), number, is_encoder)
        return [block.attention.self.shift[0] for block in stage.blocks]  # type: ignore[union-attr, misc]

    assert shifts(128, 0, True) == [0, 8, 0, 8]
    assert shifts(128, 0, False) == [8, 0, 8, 0]
    assert [shifts(128, number, True) for number in (1, 2, 3)] == [[0] * 4] * 3
    assert [shifts(64, number, False) for number in range(4)] == [[0] * 4] * 4


def test_a_stage_adds_its_input_before_it_merges() -> None:
    stage, x, time = shaken(Stage(SMALL, 0, True)), torch.randn(2, 8, 8, 8), torch.rand(2, 1)
    y, after = stage(x, time)
    assert stage.downsample is not None
    torch.testing.assert_close(after, stage.downsample(x + y, time))
    last, x = shaken(Stage(SMALL, 1, True)), torch.randn(2, 4, 4, 16)
    y, after = last(x, time)
    assert torch.equal(y, after)


def test_skips_begin_as_nothing() -> None:
    x = torch.randn(1, 8, 8, 8)
    torch.testing.assert_close(Skip(8)(x, torch.zeros(1, 1)), x, rtol=0, atol=1e-4)
    assert not torch.allclose(shaken(Skip(8))(x, torch.zeros(1, 1)), x)


@pytest.mark.oracle
@pytest.mark.parametrize(("grid", "shift"), [(8, 0), (8, 2), (4, 2), (2, 0)])
def test_a_block_is_that_of_another_swin(grid: int, shift: int) -> None:
    name = "transformers.models.swinv2.modeling_swinv2"
    theirs: Any = pytest.importorskip(name, reason="transformers is not installed; pip install transformers")
    from transformers import Swinv2Config

    torch.manual_seed(4)
    window, own_shift = min(4, grid), shift if grid > 4 else 0
    config = Swinv2Config(window_size=4, mlp_ratio=4.0, qkv_bias=True)
    layer = theirs.Swinv2Layer(config, 16, (grid, grid), 2, shift_size=shift).double().eval()
    attention = WindowAttention(16, 2, (grid, grid), (window, window), (own_shift, own_shift), 512)
    block = shaken(Block(attention, 16), 0.3).double()
    own = block.state_dict()
    for norm in ("layernorm_before", "layernorm_after"):  # at lead time 0 a conditioned norm is a plain one
        for part in ("weight", "bias"):
            own[f"{norm}.{part}"] = own.pop(f"{norm}.{part}.bias")
            del own[f"{norm}.{part}.weight"]
    missing, unexpected = layer.load_state_dict(own, strict=False)
    assert unexpected == []
    assert all(key.endswith(("relative_coords_table", "relative_position_index")) for key in missing)
    x = torch.randn(3, grid, grid, 16, dtype=torch.float64)
    expected = layer(x.flatten(1, 2), (grid, grid))[0].reshape(x.shape)
    torch.testing.assert_close(block(x, torch.zeros(3, 1).double()), expected, rtol=1e-6, atol=1e-6)


# ---- the solver ----------------------------------------------------------------------------------------------------
def test_jumps_are_of_one_to_four_frames_and_stay_inside() -> None:
    solver = tiny()
    drawn = solver.draws("fit", {"u": torch.empty(4000, 5, 1)}, generator(torch.device("cpu"), "jumps"))
    gap, begin = drawn["gap"], drawn["begin"]
    assert gap.bincount().tolist()[1:] == pytest.approx([1000] * 4, abs=120)
    assert int((gap + begin).max()) == 4
    assert set(begin[gap == 2].tolist()) == {0, 1, 2}


def test_short_trainings_jump_by_one_frame_from_anywhere() -> None:
    task = task_of("combined", 256)
    with torch.device("meta"):
        solver = Poseidon(Poseidon.recipe("fast", task).model, task)
    assert solver.window("fit", 0.0).n_frames == 0
    drawn = solver.draws("fit", {"u": torch.empty(4000, 14, 1)}, generator(torch.device("cpu"), "jumps"))
    assert set(drawn["gap"].tolist()) == {1}
    assert set(drawn["begin"].tolist()) == set(range(13))


@pytest.mark.parametrize("kind", [Poseidon, UniSolver])
def test_fields_are_not_rounded_in_mixed_precision(kind: type[Baseline]) -> None:
    """bfloat16 has eight bits: a field that went through it has at most 256 different values between 1 and 2."""
    task = task_of("combined", 64)
    torch.manual_seed(3)
    solver = shaken(kind(kind.recipe("tiny", task).model, task))
    u, xi = 0 * rough("combined", 2, 1, 64), parameters("combined", 2)  # a residual solver adds to nothing
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        new = solver.rollout(u, solver.adapt(xi=xi), 1)
    assert new.dtype == torch.float32
    assert not torch.equal(new, new.bfloat16().float())


def test_loss_by_hand() -> None:
    solver, u, xi = tiny("gray_scott", 0), rough("gray_scott", 2, 5), parameters("gray_scott", 2)
    gap, begin, frame = torch.tensor([1, 3]), torch.tensor([2, 0]), torch.tensor([4, 7])
    batch = {"u": u, "xi": xi, "gap": gap, "begin": begin, "frame": frame}
    before, after = torch.stack((u[0, 2], u[1, 0])), torch.stack((u[0, 3], u[1, 3]))
    u_hat = solver.jump(before, solver.adapt(xi=xi), frame + begin, gap)
    shares = [(u_hat - after)[:, c].abs().mean() / after[:, c].abs().mean() for c in range(2)]
    torch.testing.assert_close(solver.loss("fit", batch)["loss"], torch.stack(shares).mean())


def test_the_lead_time_is_heard() -> None:
    solver, u, xi = tiny(), rough("combined", 2, 1, 64)[:, 0], parameters("combined", 2)
    state, frame = solver.adapt(xi=xi), torch.zeros(2, dtype=torch.long)
    one, two = (solver.jump(u, state, frame, torch.full((2,), gap)) for gap in (1, 2))
    assert not torch.allclose(one, two)


def test_a_forcing_in_time_is_told_half_way() -> None:
    solver, u, xi = tiny("burgers"), rough("burgers", 2, 1, 64)[:, 0], parameters("burgers", 2)
    seen: list[Tensor] = []
    solver.net.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    solver.jump(u, solver.adapt(xi=xi), torch.tensor([3, 5]), torch.tensor([1, 2]))
    told = solver.lift.inverse(seen[0])  # (B,3,64): field, diffusivity, forcing
    assert seen[0].shape[1] == 3
    torch.testing.assert_close(told[:, :1], u)
    torch.testing.assert_close(told[:, 1], solver.standardised(xi)[:, :1].expand(-1, 64))
    system = solver.task.problem
    gap = float(system.times[1] - system.times[0])
    forcing = system.forcing(system.times[0] + torch.tensor([3.5, 6.0]) * gap, xi, u.double())
    torch.testing.assert_close(told[:, 2:], (forcing * gap / solver.task.statistics.std[0]).float())


def test_a_rollout_makes_jumps_of_one() -> None:
    solver, u, xi = tiny("burgers"), rough("burgers", 2, 1, 64), parameters("burgers", 2)
    state = solver.adapt(xi=xi)
    with torch.no_grad():
        frames = solver.rollout(u, state, 2)
        one = torch.ones(2, dtype=torch.long)
        first = solver.jump(u[:, 0], state, 0 * one, one)
        torch.testing.assert_close(frames[:, 0], first)
        torch.testing.assert_close(frames[:, 1], solver.jump(first, state, one, one))
