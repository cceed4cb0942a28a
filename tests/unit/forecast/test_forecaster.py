"""forecast(): shapes, units, rows, horizons, mistakes, and rows that run away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.core.device import full_precision
from pdejepa.core.errors import DataError, ParameterError
from pdejepa.forecast import forecaster as module
from pdejepa.forecast.forecaster import Forecaster, load
from pdejepa.forecast.interface import Solver
from pdejepa.forecast.support import unlike
from tests.unit.forecast import tiny


@pytest.fixture(scope="module")
def heat() -> Forecaster:
    return tiny.forecaster("heat")


@pytest.fixture(scope="module")
def waves() -> Forecaster:
    return tiny.forecaster("wave_b")


@pytest.mark.parametrize("name", systems.NAMES)
def test_every_system_forecasts(name: str) -> None:
    model = tiny.forecaster(name)
    system, u0 = model.system, tiny.state(model.system, 2)
    result = model.forecast(u0, tiny.middle(system))
    n = len(system.times)
    assert result.fields.shape == (2, n, len(system.fields), *system.grid)
    assert result.fields.dtype == torch.float32
    assert torch.equal(result.fields[:, 0], u0)
    assert torch.equal(result.new, result.fields[:, 1:])
    assert result.is_stable
    assert bool(torch.isfinite(result.fields).all())
    assert float((result.new[:, -1] - result.new[:, 0]).abs().amax()) > 0
    torch.testing.assert_close(result.times, system.times)
    assert tiny.told(result).is_inside
    assert result.xi.shape == (2, len(system.parameters))
    assert result.seconds > 0


def test_the_four_steps_written_out(heat: Forecaster) -> None:
    """Normalise, encode, roll out, decode, back to physical units."""
    model, u0 = heat.surrogate, tiny.state(heat.system, 2)
    xi = heat.system.xi(diffusivity=[0.5, 2.0], forcing_amplitude_1=0.3)
    with torch.no_grad():
        q = model.rollout(model.encode(((u0 - 0.1) / 0.7)[:, None]), model.drive(xi), 5)
        expected = model.decode(q) * 0.7 + 0.1
    result = heat.forecast(u0, xi, n_frames=5)
    torch.testing.assert_close(result.new, expected[:, 1:], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.reconstruction, expected[:, :1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.decoded, expected, rtol=1e-5, atol=1e-6)


def test_ways_to_say_the_same(heat: Forecaster) -> None:
    u0 = tiny.state(heat.system)
    expected = heat.forecast(u0, diffusivity=0.5, n_frames=3)
    assert expected.new.shape[1] == 3
    for same in (u0[0], u0[0].numpy(), u0.double().numpy(), u0[:, None]):
        assert torch.equal(heat.forecast(same, diffusivity=0.5, n_frames=3).fields, expected.fields)
    xi = heat.system.xi(diffusivity=0.5)
    for other in (xi, xi[0], xi.numpy(), {"diffusivity": 0.5}, {"diffusivity": np.float32(0.5)}):
        assert torch.equal(heat.forecast(u0, other, n_frames=3).fields, expected.fields)


def test_arrays_of_any_layout(heat: Forecaster) -> None:
    u0, xi = tiny.state(heat.system), heat.system.xi(diffusivity=0.3)
    expected = heat.forecast(u0, xi, n_frames=2).fields
    backwards = np.ascontiguousarray(u0.numpy()[..., ::-1])[..., ::-1]  # the same values, with a negative stride
    frozen = u0.numpy().copy()
    frozen.flags.writeable = False
    many = (backwards, u0.numpy().astype(">f4"), u0.numpy().astype(np.longdouble), frozen)
    for same in (*many, list(u0), [u0[0].numpy()], [[list(u0[0, 0])]], u0.tolist()):
        assert torch.equal(heat.forecast(same, xi, n_frames=2).fields, expected)
    other = np.ascontiguousarray(xi.numpy()[:, ::-1])[:, ::-1]
    for same in (other, xi.numpy().astype(">f8"), list(xi), [list(xi[0])], xi.tolist()):
        assert torch.equal(heat.forecast(u0, same, n_frames=2).xi, xi)
    values = np.array([1.0, 0.3])[::-1]
    assert heat.forecast(u0, diffusivity=values, n_frames=2).xi[:, 0].tolist() == [0.3, 1.0]
    for n in (np.int64(2), torch.tensor(2)):
        assert torch.equal(heat.forecast(u0, xi, n_frames=n).fields, expected)  # type: ignore[arg-type]


def test_rows_are_independent(heat: Forecaster) -> None:
    u0, beta = tiny.state(heat.system, 3), [0.01, 0.5, 5.0]
    together = heat.forecast(u0, diffusivity=beta, forcing_amplitude_2=[0.1, 0.2, 0.3], n_frames=6)
    for row in range(3):
        alone = heat.forecast(u0[row], diffusivity=beta[row], forcing_amplitude_2=0.1 * (row + 1), n_frames=6)
        torch.testing.assert_close(together.fields[row], alone.fields[0], rtol=1e-4, atol=1e-5)
    assert float((together.fields[0, -1] - together.fields[1, -1]).abs().amax()) > 0


def test_rows_outside_the_training_range_take_finer_steps_and_leave_the_others_alone(heat: Forecaster) -> None:
    u0 = tiny.state(heat.system, 2)
    alone = heat.forecast(u0[:1], diffusivity=1.0)
    both = heat.forecast(u0, diffusivity=[1.0, 15.0])
    torch.testing.assert_close(both.fields[:1], alone.fields, rtol=1e-5, atol=1e-6)
    model, xi = heat.surrogate, heat.system.xi(diffusivity=15.0)  # three times the largest value of training
    q = model.rollout(model.encode(model.normalise(u0[1:, None])), model.drive(xi), 3, torch.full((1, 3), 1 / 3))
    torch.testing.assert_close(both.fields[1:, 1:4], model.denormalise(model.decode(q))[:, 1:], rtol=1e-4, atol=1e-5)
    plain = Forecaster(model, heat.details, heat.device)
    plain.takes_finer_steps = False
    q = model.rollout(model.encode(model.normalise(u0[1:, None])), model.drive(xi), 3)
    expected = model.denormalise(model.decode(q))[:, 1:]
    torch.testing.assert_close(plain.forecast(u0[1:], xi, n_frames=3).new, expected, rtol=1e-4, atol=1e-5)


def test_one_state_many_parameters_and_the_reverse(heat: Forecaster) -> None:
    u0 = tiny.state(heat.system, 4)
    many = heat.forecast(u0[0], diffusivity=[0.1, 1.0, 5.0], n_frames=2)
    assert many.fields.shape[0] == 3
    assert torch.equal(many.fields[:, 0], u0[:1].expand(3, -1, -1))
    assert heat.forecast(u0, diffusivity=0.1, n_frames=2).fields.shape[0] == 4
    with pytest.raises(ParameterError, match="4 observed states but 3 rows of parameters"):
        heat.forecast(u0, diffusivity=[0.1, 1.0, 5.0])


def test_pieces_change_nothing(heat: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    u0, beta = tiny.state(heat.system, 5), [0.1, 0.2, 0.4, 0.8, 1.6]
    field = torch.linspace(-1, 1, 5)[:, None, None] * tiny.state(heat.system, 1, seed=4)
    whole = heat.forecast(u0, diffusivity=beta, n_frames=4, forcing=field)
    monkeypatch.setitem(module.MEMORY, "cpu", 1e5)
    assert len(heat.pieces(5, 5)) == 5
    pieces = heat.forecast(u0, diffusivity=beta, n_frames=4, forcing=field)
    torch.testing.assert_close(pieces.fields, whole.fields, rtol=1e-4, atol=1e-5)
    assert pieces.outcome == whole.outcome


@pytest.mark.parametrize("name", ["heat", "wave_b", "gray_scott"])
def test_any_horizon(name: str) -> None:
    model = tiny.forecaster(name)
    u0, values = tiny.state(model.system), tiny.middle(model.system)
    short, long = (model.forecast(u0, values, n_frames=n) for n in (1, 7))
    assert torch.equal(long.fields[:, :2], short.fields)
    n = len(model.system.times)
    beyond = model.forecast(u0, values, n_frames=n + 10)
    assert beyond.fields.shape[1] == n + 11
    assert torch.equal(beyond.fields[:, :8], long.fields)
    assert "Extrapolating" in beyond.support.sentences[0]
    assert float(beyond.times[n]) == pytest.approx(float(model.system.times[-1]) + float(model.system.times.diff()[0]))


def test_two_observed_frames(waves: Forecaster) -> None:
    first, change = tiny.state(waves.system, 2), 0.1 * tiny.state(waves.system, 2, seed=1)
    pair = torch.stack((first, first + change), 1)  # (2,2,C,N)
    values = {"bc_left": 0, "bc_right": 1}
    result = waves.forecast(pair, values)
    assert result.is_stable
    assert result.n_observed == 2
    assert result.fields.shape[1] == 25
    assert torch.equal(result.fields[:, :2], pair)
    assert result.reconstruction.shape == pair.shape
    one = waves.forecast(pair[:, 0], values)
    assert one.fields.shape[1] == 25
    assert not torch.equal(one.fields[:, 3], result.fields[:, 3])

    two = tiny.forecaster("wave_b", history=2)
    alone = two.forecast(pair[0], values)  # (2,C,N): two frames of one row
    assert alone.fields.shape == (1, 25, 1, 256)
    torch.testing.assert_close(alone.fields[0], two.forecast(pair, values).fields[0], rtol=1e-4, atol=1e-5)
    for wrong in (pair[0, 0], pair[0, :1]):
        with pytest.raises(DataError, match=r"This model observes two frames; single ones work as \(B, 1, 1, 256\)"):
            two.forecast(wrong, values)
    assert two.forecast(pair[:, :1], values).is_stable


@pytest.mark.parametrize(
    ("u0", "words"),
    [
        (torch.zeros(255), r"expects the observed state as \(1, 256\) or \(B, 1, 256\).*got \(255,\)"),
        (torch.zeros(1, 128), r"got \(1, 128\)"),
        (torch.zeros(256, 1), r"got \(256, 1\)\. Did you mean channels first\?"),
        (torch.zeros(3, 256, 1), r"Did you mean channels first\?"),
        (torch.zeros(3, 2, 256), r"got \(3, 2, 256\)"),
        (torch.zeros(3, 2, 1, 256), r"got \(3, 2, 1, 256\)"),
        (torch.zeros(0, 1, 256), r"got \(0, 1, 256\)"),
        (torch.full((1, 256), torch.nan), "NaN or infinite"),
        (torch.full((1, 256), torch.inf), "NaN or infinite"),
        (torch.zeros(1, 256, dtype=torch.complex64), "array of real numbers"),
        ("a word", "array of real numbers; got str"),
        ([[1.0, 2.0], [3.0]], "real numbers; got a list whose parts have different shapes"),
        ([torch.zeros(256), torch.zeros(128)], "real numbers; got a list whose parts have different shapes"),
        (np.zeros((1, 256), dtype="datetime64[s]"), "real numbers; got ndarray of datetime64"),
        (torch.zeros(1, 256).to_sparse(), "real numbers; got a sparse tensor"),
        (torch.zeros(1, 256, device="meta"), "real numbers; got a meta tensor"),
        (torch.full((1, 256), 1e60, dtype=torch.float64), "must fit single precision"),
        (None, "array of real numbers; got NoneType"),
    ],
)
def test_wrong_states(heat: Forecaster, u0: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        heat.forecast(u0, diffusivity=0.1)


def test_the_axis_of_a_single_channel_may_be_left_out(heat: Forecaster) -> None:
    u0 = torch.rand(8, 1, 256)
    values = tiny.middle(heat.system)
    full = heat.forecast(u0, values, n_frames=1).fields
    assert torch.equal(heat.forecast(u0[:, 0], values, n_frames=1).fields, full)
    alone = heat.forecast(u0[:1], values, n_frames=1).fields
    assert torch.equal(heat.forecast(u0[0, 0].numpy(), values, n_frames=1).fields, alone)


def test_words_of_a_solver_are_no_parameters(heat: Forecaster) -> None:
    u0, values = torch.zeros(1, 256), tiny.middle(heat.system)
    for word in ("dt", "times"):
        with pytest.raises(ParameterError, match=rf"heat: a forecast has no {word}: .* Give n_frames=.*, t0="):
            heat.forecast(u0, **values, **{word: 0.1})


def test_a_symbol_is_answered_with_its_word() -> None:
    with pytest.raises(ParameterError, match=r"has no parameter 'alpha', did you mean advection \(alpha\)\?"):
        systems.get("combined").xi(alpha=0.5, diffusivity=0.1, dispersion=0.1)


def test_wrong_states_of_planes() -> None:
    model = tiny.forecaster("gray_scott")
    with pytest.raises(DataError, match=r"\(2, 32, 32\) or \(B, 2, 32, 32\).*Did you mean channels first"):
        model.forecast(np.zeros((32, 32, 2)), tiny.middle(model.system))


def test_wrong_parameters(heat: Forecaster) -> None:
    u0 = tiny.state(heat.system)
    for arguments, words in (
        ({}, "heat needs diffusivity; got none"),
        ({"difusivity": 1.0}, "did you mean 'diffusivity'"),
        ({"diffusivity": -1.0}, r"diffusivity must be in \[0, 100\]"),
        ({"diffusivity": float("nan")}, "diffusivity must be in"),
        ({"diffusivity": 1.0, "n_frames": 0}, "n_frames counts new frames"),
        ({"diffusivity": 1.0, "n_frames": 2.5}, "n_frames counts new frames"),
        ({"diffusivity": 1.0, "n_frames": True}, "n_frames counts new frames"),
        ({"diffusivity": 1.0, "n_frames": 10**9}, "from 1 to 25,000, which is 1000 times the length .*; got 10+"),
        ({"diffusivity": 1.0, "viscosity": 1.0}, r"heat has no parameter 'viscosity'.* It needs diffusivity\."),
        ({"diffusivity": 1.0, "n_frame": 3}, "no parameter 'n_frame', did you mean 'n_frames'"),
        ({"xi": {1: 0.5}}, "heat has no parameter 1"),
        ({"xi": {"diffusivity": 1.0}, "diffusivity": 2.0}, "diffusivity is given twice, in a mapping and by keyword"),
        ({"diffusivity": [[0.1, 0.2]]}, r"diffusivity takes one number or one per row; got \(1, 2\)"),
        ({"diffusivity": []}, r"diffusivity takes one number or one per row; got \(0,\)"),
        ({"diffusivity": 1.0, "t0": float("nan")}, "t0 must be one finite time"),
        ({"diffusivity": 1.0, "t0": "now"}, "t0 must be one finite time"),
        ({"xi": torch.zeros(1, 3)}, r"shape \(B, 21\)"),
        ({"xi": torch.zeros(1, 21), "diffusivity": 1.0}, "tensor or by name, not both"),
        ({"xi": "all"}, "parameters must be numbers"),
        ({"xi": [[1.0, 2.0], [3.0]]}, "a list whose parts have different shapes"),
        ({"xi": torch.zeros(1, 21).to_sparse()}, "parameters must be numbers; got a sparse tensor"),
    ):
        with pytest.raises(ParameterError, match=words):
            heat.forecast(u0, **arguments)


def test_extrapolation_is_told(heat: Forecaster) -> None:
    result = heat.forecast(tiny.state(heat.system), diffusivity=50.0, n_frames=3)
    assert tiny.told(result).sentences == (
        "Extrapolating: diffusivity 50 is above the training range [0.001, 5] (10x above).",
    )


def test_frames_that_the_model_does_not_see_are_told(heat: Forecaster) -> None:
    result = heat.forecast(tiny.state(heat.system, 3), diffusivity=1.0, n_frames=3)
    assert not result.support.is_inside
    (sentence,) = result.support.sentences
    assert "frames of 3 of 3 rows as they are: encoded and decoded again they are off by " in sentence
    rms = heat.surrogate.statistics.channel_rms(1, result.fields.device)
    seen = unlike(result.fields[:, :1] / rms, result.reconstruction / rms)
    assert result.support.unlike == seen


def test_no_gradients_and_no_side_effects(heat: Forecaster) -> None:
    u0 = tiny.state(heat.system).requires_grad_()
    before = u0.detach().clone()
    result = heat.forecast(u0, diffusivity=0.1, n_frames=2)
    assert not result.fields.requires_grad
    result.fields.zero_()
    assert torch.equal(u0.detach(), before)


# ---- rows that run away ----------------------------------------------------------------------------------------
def wild(name: str, factor: float) -> Forecaster:
    """The response to the one parameter is far too strong: rows run away unless their r is zero."""
    model = tiny.forecaster(name)
    head = model.surrogate.field.D_heads[0][-1]  # type: ignore[union-attr,index]
    head.weight.data.mul_(factor)
    return model


def test_unstable_rows_are_marked_and_the_others_untouched() -> None:
    calm, model = tiny.forecaster("advection"), wild("advection", 1e4)
    u0 = tiny.state(model.system, 3)
    result = model.forecast(u0, speed=[0.0, 4.0, 0.0])
    assert [outcome.label for outcome in result.outcome] == ["ok", "unstable", "ok"]
    assert not result.is_stable
    bad = result.outcome[1].first_bad
    assert bad is not None
    assert bad >= 1
    assert bool(torch.isnan(result.fields[1, bad:]).all())
    assert bool(torch.isfinite(result.fields[1, :bad]).all())
    assert f"frame {bad} left every plausible bound" in result.outcome[1].sentence
    assert result.outcome[0].sentence == "stable"
    assert bool(torch.isfinite(result.fields[[0, 2]]).all())
    expected = calm.forecast(u0, speed=[0.0, 4.0, 0.0]).fields  # zero speed: the head does not count
    torch.testing.assert_close(result.fields[[0, 2]], expected[[0, 2]], rtol=1e-4, atol=1e-5)


def test_values_that_overflow() -> None:
    result = wild("advection", 1e38).forecast(tiny.state(systems.get("advection")), speed=4.0)
    assert result.outcome[0].first_bad == 1
    assert bool(torch.isnan(result.new).all())
    assert bool(torch.isfinite(result.fields[:, 0]).all())


def test_fields_far_from_the_training_data_are_unstable() -> None:
    model = tiny.forecaster("advection")
    model.surrogate.decoder.layers[-1].bias.data.fill_(101.0)  # type: ignore[union-attr]
    result = model.forecast(tiny.state(model.system), speed=1.0, n_frames=3)
    assert result.outcome[0].first_bad == 1
    model.surrogate.decoder.layers[-1].bias.data.fill_(99.0)  # type: ignore[union-attr]
    assert model.forecast(tiny.state(model.system), speed=1.0, n_frames=3).is_stable


def test_full_precision_is_switched_on_and_back() -> None:
    """Only switches are touched, so this works without a GPU too."""
    switches = lambda: (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)  # noqa: E731
    before = switches()
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(ZeroDivisionError), full_precision(torch.device("cuda")):
            assert switches() == ("highest", False)
            raise ZeroDivisionError
        assert switches() == ("high", before[1])
    finally:
        torch.set_float32_matmul_precision(before[0])


# ---- the calls of all solvers in a comparison --------------------------------------------------------------------
@pytest.mark.parametrize("name", ["combined", "heat", "gray_scott", "wave_b"])
def test_the_calls_of_a_comparison(name: str) -> None:
    model = tiny.forecaster(name)
    assert isinstance(model, Solver)
    assert (model.card.name, model.card.history) == ("pdejepa", model.surrogate.history)
    u, xi = tiny.state(model.system, 3)[:, None], model.system.xi(**tiny.middle(model.system)).expand(3, -1)
    state = model.adapt(xi=xi)
    new = model.rollout(u, state, 5)
    assert torch.equal(new, model.forecast(u[:, 0], xi, n_frames=5).new)
    assert torch.equal(model.rollout(u, state, 3), new[:, :3])  # the beginning of a longer one
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(model.rollout(u[order], {"xi": xi[order]}, 5), new[order], rtol=1e-4, atol=1e-5)
    assert model.encode(u).shape == (3, 1, model.surrogate.patches.n_tokens, model.surrogate.config.encoder.width)


def test_forecasts_compile_nothing(heat: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that was trained in this process is compiled for bfloat16, and would be again for float32."""
    seen: list[torch.device] = []
    monkeypatch.setattr(module, "without_new_code", lambda device: seen.append(device) or nullcontext())
    u, xi = tiny.state(heat.system, 2), heat.system.xi(diffusivity=[0.5, 2.0])
    heat.forecast(u, xi, n_frames=2)
    heat.encode(u[:, None])
    assert seen == [heat.device] * 2


def test_a_rollout_of_no_frames(heat: Forecaster) -> None:
    """As the published solvers have it; a forecast of none is a mistake."""
    u, xi = tiny.state(heat.system, 4).reshape(2, 2, 1, -1), heat.system.xi(diffusivity=[0.5, 2.0])
    assert heat.rollout(u, heat.adapt(xi=xi), 0).shape == (2, 0, *u.shape[2:])
    assert heat.rollout(u[:1], heat.adapt(xi=xi), 0).shape == (2, 0, *u.shape[2:])
    for wrong in (False, -1, 0.0):
        with pytest.raises(ParameterError, match="n_frames counts new frames"):
            heat.rollout(u, heat.adapt(xi=xi), wrong)  # type: ignore[arg-type]


def test_a_rollout_after_several_frames_begins_at_the_last(heat: Forecaster) -> None:
    """In the state, and in the time of the forcing."""
    u = tiny.state(heat.system, 4).reshape(2, 2, 1, -1)  # (B,H,C,grid)
    xi = heat.system.xi(diffusivity=[0.5, 2.0], forcing_amplitude_1=0.3, forcing_frequency_1=0.4)
    gap = float(heat.system.times[1] - heat.system.times[0])
    expected = heat.forecast(u[:, 1], xi, n_frames=4, t0=float(heat.system.times[0]) + gap).new
    torch.testing.assert_close(heat.rollout(u, heat.adapt(xi=xi), 4), expected)
    assert not torch.allclose(expected, heat.forecast(u[:, 1], xi, n_frames=4).new)


def test_two_frames_tell_a_wave_its_direction(waves: Forecaster) -> None:
    u, xi = tiny.state(waves.system, 4).reshape(2, 2, 1, -1), waves.system.xi(**tiny.middle(waves.system)).expand(2, -1)
    expected = waves.forecast(u, xi, n_frames=4).new
    torch.testing.assert_close(waves.rollout(u, waves.adapt(xi=xi), 4), expected)


def test_arrays_and_names_work_in_a_comparison(heat: Forecaster) -> None:
    u, values = tiny.state(heat.system, 4).reshape(2, 2, 1, -1), tiny.middle(heat.system)
    state = heat.adapt(xi=heat.system.xi(values))
    expected, q = heat.rollout(u, state, 3), heat.encode(u)
    assert torch.equal(heat.adapt(xi=values)["xi"], state["xi"])
    for same in (u.numpy(), u.double(), u.tolist()):
        assert torch.equal(heat.rollout(same, state, 3), expected)
        assert torch.equal(heat.encode(same), q)


@pytest.mark.parametrize(
    ("u", "words"),
    [
        (torch.zeros(5, 1, 256), r"as \(B, T, 1, 256\).*got \(5, 1, 256\)\. Give one trajectory as u\[None\]"),
        (torch.zeros(256), r"got \(256,\)"),
        (torch.zeros(2, 3, 2, 256), r"got \(2, 3, 2, 256\)"),
        (torch.zeros(2, 3, 1, 128), r"got \(2, 3, 1, 128\)"),
        (torch.zeros(2, 3, 256, 1), r"Did you mean channels first\?"),
        (torch.zeros(0, 3, 1, 256), r"got \(0, 3, 1, 256\)"),
        (torch.zeros(2, 0, 1, 256), r"got \(2, 0, 1, 256\)"),
        (torch.full((2, 3, 1, 256), torch.nan), "NaN or infinite"),
        (None, "array of real numbers; got NoneType"),
    ],
)
def test_wrong_trajectories(heat: Forecaster, u: Any, words: str) -> None:
    state = heat.adapt(xi=tiny.middle(heat.system))
    for call in (heat.encode, lambda u: heat.rollout(u, state, 2)):
        with pytest.raises(DataError, match=words):
            call(u)


def test_wrong_states_of_a_comparison(heat: Forecaster) -> None:
    for state in ({}, None, torch.zeros(1, 21), {"xi": None}):
        with pytest.raises(ParameterError, match="rollout needs the state that adapt returns"):
            heat.rollout(tiny.state(heat.system)[:, None], state, 2)  # type: ignore[arg-type]
    for xi, words in (
        (torch.zeros(1, 3), r"shape \(B, 21\)"),
        (torch.full((1, 21), torch.nan), "diffusivity must be in"),
        ("all", "parameters must be numbers"),
        ({"difusivity": 1.0}, "did you mean 'diffusivity'"),
    ):
        with pytest.raises(ParameterError, match=words):
            heat.adapt(xi=xi)


def test_a_trajectory_does_not_replace_parameters(heat: Forecaster) -> None:
    with pytest.raises(ParameterError, match="adapt needs xi"):
        heat.adapt(support=tiny.state(heat.system, 1)[:, None, None])


def test_representations_do_not_depend_on_the_size_where_the_model_does_not() -> None:
    model = load("combined", "cpu")
    u = model.system.sample("test", 0)[0].float()[:, None]
    torch.testing.assert_close(model.encode(3 * u), model.encode(u), rtol=1e-4, atol=1e-4)


def test_representations_of_a_frame_do_not_depend_on_the_frames_before_it() -> None:
    model = load("combined", torch.device("cpu"))
    u = model.system.generate("test", 2).fields[:, ::6]  # (2,3,1,256); waves decay
    alone = torch.cat([model.encode(u[:, t : t + 1]) for t in range(u.shape[1])], 1)
    torch.testing.assert_close(model.encode(u), alone, rtol=1e-4, atol=1e-4)


def test_a_forecast_is_shown_in_a_few_words(heat: Forecaster) -> None:
    text = repr(heat.forecast(tiny.state(heat.system, 2), diffusivity=0.5, n_frames=3))
    assert text.startswith("<Forecast: 2 rows, 3 new frames of 1 x 256 to t = ")
    assert len(text) < 400


# ---- threads on a CPU --------------------------------------------------------------------------------------------
@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("n_rows", [1, 5])
def test_rows_are_shared_out_over_threads_of_one_core(n_rows: int, two_threads: None, heat: Forecaster) -> None:
    """Two threads in one product wait for each other: on a busy machine that took ten times as long."""
    u0, seen = tiny.state(heat.system, n_rows), []
    rollout = heat.surrogate.rollout

    def watched(q: Tensor, *rest: Any) -> Tensor:
        seen.append((len(q), torch.get_num_threads(), torch.is_grad_enabled()))
        return rollout(q, *rest)

    with mock.patch.object(heat.surrogate, "rollout", watched):
        found = heat.forecast(u0, diffusivity=0.5, n_frames=3)
    assert sorted(seen) == ([(1, 1, False)] if n_rows == 1 else [(2, 1, False), (3, 1, False)])
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    alone = heat.forecast(u0, diffusivity=0.5, n_frames=3)
    torch.testing.assert_close(found.fields, alone.fields, rtol=1e-6, atol=1e-6)


def test_functions_of_users_meet_one_thread(two_threads: None, heat: Forecaster) -> None:
    seen = []

    def forcing(t: Tensor, x: Tensor) -> Tensor:
        seen.append(threading.current_thread())
        return 0 * x

    heat.forecast(tiny.state(heat.system, 4), diffusivity=0.5, n_frames=2, forcing=forcing)
    assert set(seen) == {threading.main_thread()}


def test_shared_out_rows_carry_gradients(two_threads: None, heat: Forecaster) -> None:
    diffusivity = torch.full((4,), 0.5, dtype=torch.float64, requires_grad=True)
    result = heat.forecast(tiny.state(heat.system, 4), diffusivity=diffusivity, n_frames=2, gradients=True)
    (slope,) = torch.autograd.grad(result.new.square().sum(), diffusivity)
    assert bool((slope != 0).all())
