"""Whole splits: in memory and from a data set, in blocks, with unstable rows counted and not averaged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median

import pytest
import torch

from pdejepa.core.errors import DataError
from pdejepa.data.well.reader import Dataset
from pdejepa.evaluate import metrics, protocol
from pdejepa.evaluate.evaluations import make_record
from pdejepa.evaluate.protocol import evaluate, score
from pdejepa.evaluate.record import to_plain
from tests.unit.forecast import tiny

KEYS = [
    "rel_l2",
    "rel_l2_all_frames",
    "rel_l2_joint",
    "median",
    "last_frame",
    "per_channel",
    "per_frame",
    "repeat_first",
    "n",
    "n_unstable",
    "trajectories",
]


def test_numbers_fit_together() -> None:
    model = tiny.forecaster("advection")
    seen: list[int] = []
    found = evaluate(model, ["test", "ood"], n=4, report=seen.append)
    assert sum(seen) == 8
    assert list(found) == ["test", "ood"]
    for split, errors in found.items():
        assert set(to_plain(errors)) == {*KEYS, "source"}
        assert errors.source == "generated"
        assert errors.n == len(errors.trajectories) == 4
        assert errors.rel_l2 == pytest.approx(mean(errors.trajectories))
        assert errors.median == pytest.approx(median(errors.trajectories))
        assert len(errors.per_frame) == 13
        assert errors.per_frame[-1] == pytest.approx(errors.last_frame)
        assert errors.per_channel == {"u": pytest.approx(errors.rel_l2)}
        assert errors.rel_l2_joint == pytest.approx(errors.rel_l2)  # one channel
        made = model.system.generate(split, 4)
        still = metrics.rel_l2(metrics.repeat_first(made.fields), made.fields).mean()
        assert errors.repeat_first == pytest.approx(float(still))
        result = model.forecast(made.fields[:, 0], made.xi)
        assert errors.rel_l2 == pytest.approx(float(metrics.rel_l2(result.fields, made.fields).mean()), rel=1e-4)
        every = metrics.rel_l2(result.decoded, made.fields, 0).mean()
        assert errors.rel_l2_all_frames == pytest.approx(float(every), rel=1e-4)


def test_the_size_of_the_training_decides_how_many() -> None:
    model = tiny.forecaster("advection")
    assert evaluate(model, ["test"])["test"].n == 10
    assert protocol.trajectory_counts(model, ["test"], n=500) == {"test": 500}  # generated data know no end
    model.details["size"] = "paper"
    assert protocol.trajectory_counts(model, ["test", "ood"]) == {"test": 120, "ood": 120}


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.forecaster("advection")
    whole = evaluate(model, ["test"], n=7)["test"]
    monkeypatch.setattr(protocol, "BLOCK_BYTES", 1.0)
    monkeypatch.setattr(type(model.system), "chunk", (2, 2))
    pieces = evaluate(model, ["test"], n=7)["test"]
    assert pieces.trajectories == pytest.approx(whole.trajectories, rel=1e-4)
    assert pieces.rel_l2 == pytest.approx(whole.rel_l2, rel=1e-4)


def test_a_perfect_forecast() -> None:
    """A model that repeats its input is perfect where nothing moves."""
    model = tiny.forecaster("advection")
    u = tiny.state(model.system, 3)[:, None].expand(-1, 14, -1, -1)
    model.surrogate.decoder.forward = lambda q: ((u[:, :1] - 0.1) / 0.7).expand(-1, q.shape[1], -1, -1)  # type: ignore
    errors = score(model, u.contiguous(), model.system.xi(speed=[0.0, 0.0, 0.0]))
    assert errors.rel_l2 == pytest.approx(0.0, abs=1e-6)
    assert errors.rel_l2_all_frames == pytest.approx(0.0, abs=1e-6)
    assert errors.repeat_first == 0.0


def test_two_observed_frames() -> None:
    one, two = tiny.forecaster("wave_b"), tiny.forecaster("wave_b", history=2)
    first = evaluate(one, ["test"], n=2)["test"]
    assert len(first.per_frame) == 24
    for errors in (evaluate(two, ["test"], n=2)["test"], evaluate(one, ["test"], n=2, observed=2)["test"]):
        assert len(errors.per_frame) == 23
    assert make_record(one, {}, 2).observed_frames == make_record(two, {}).observed_frames == 2


def test_two_channels_with_a_zero_in_the_first_frame() -> None:
    errors = evaluate(tiny.forecaster("wave_2d"), ["ood"], n=2)["ood"]
    assert list(errors.per_channel) == ["u", "u_t"]
    assert all(math.isfinite(value) for value in errors.per_channel.values())
    assert errors.rel_l2 == pytest.approx(mean(errors.per_channel.values()))


def test_unstable_rows() -> None:
    model = tiny.forecaster("advection")
    model.surrogate.field.D_heads[0][-1].weight.data.mul_(1e4)  # type: ignore[union-attr,index]
    fields = tiny.state(model.system, 4)[:, None].expand(-1, 14, -1, -1).contiguous()
    errors = score(model, fields, model.system.xi(speed=[0.0, 4.0, 0.0, 4.0]))
    assert errors.n == 4
    assert errors.n_unstable == 2
    assert [value is None for value in errors.trajectories] == [False, True, False, True]
    counted = [1.0 if value is None else value for value in errors.trajectories]  # a failure counts as 100 %
    assert errors.rel_l2 == pytest.approx(mean(counted))
    none = score(model, fields[:1], model.system.xi(speed=4.0))
    assert none.rel_l2 == 1.0
    assert none.per_channel == {"u": 1.0}
    assert none.n_unstable == 1
    json.dumps(to_plain(none), allow_nan=False)


def test_a_data_set_gives_the_same(tiny_datasets: Callable[[str], Path]) -> None:
    model = tiny.forecaster("heat")
    with Dataset.open(tiny_datasets("heat")) as data:
        stored = evaluate(model, ["test"], data)["test"]
        assert stored.n == 10
        assert stored.trajectories == evaluate(model, ["test"])["test"].trajectories
        with pytest.raises(DataError, match="test has 10 trajectories; 11 were asked for"):
            evaluate(model, ["test"], data, n=11)
        with pytest.raises(DataError, match="no split 'tset', did you mean 'test'"):
            evaluate(model, ["tset"], data)
        with pytest.raises(DataError, match="does not fit the model: its system: heat; the model's: burgers"):
            evaluate(tiny.forecaster("burgers"), ["test"], data)
    with pytest.raises(DataError, match="did you mean 'ood'"):
        evaluate(model, ["oood"])
    with pytest.raises(DataError, match="1 or more; got 0"):
        evaluate(model, ["test"], n=0)


def test_truth_must_be_finite() -> None:
    model = tiny.forecaster("advection")
    fields = torch.full((1, 14, 1, 256), torch.nan)
    with pytest.raises(DataError, match="not finite"):
        score(model, fields, model.system.xi(speed=1.0))
