"""Learning rates and score steps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdejepa.training.schedule import learning_rate_factor, score_steps
from pdejepa.training.settings import ScheduleConfig, ScheduleKind


def factors(n_steps: int, **values: object) -> list[float]:
    config = ScheduleConfig(**values)  # type: ignore[arg-type]
    return [learning_rate_factor(config, step, n_steps) for step in range(n_steps)]


def test_warm_up_is_a_straight_line_from_start_to_one() -> None:
    found = factors(100, kind="constant", warmup=0.09, start=0.1)
    assert found[:9] == pytest.approx([0.1 + 0.9 * n / 10 for n in range(1, 10)])
    assert found[9:] == [1.0] * 91


def test_cosine() -> None:
    found = factors(100, kind="cosine", warmup=0.2, final=0.1)
    assert found[20] == 1.0
    assert found[60] == pytest.approx(0.55)
    assert found[99] == pytest.approx(0.1 + 0.45 * (1 + math.cos(math.pi * 79 / 80)))


def test_wsd_is_constant_then_a_straight_line_to_final() -> None:
    found = factors(100, kind="wsd", warmup=0.1, decay=0.4, final=0.2)
    assert found[10:61] == [1.0] * 51
    assert found[60:] == pytest.approx([1 - 0.8 * n / 40 for n in range(40)])


@pytest.mark.parametrize("kind", ["wsd", "cosine", "constant"])
@pytest.mark.parametrize("n_steps", [1, 2, 3, 7])
def test_short_trainings_move_in_every_step(kind: ScheduleKind, n_steps: int) -> None:
    assert all(0 < factor <= 1 for factor in factors(n_steps, kind=kind, warmup=0.3, decay=0.7))


@given(
    st.sampled_from(["wsd", "cosine", "constant"]),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(1, 300),
)
def test_up_then_down_within_bounds(
    kind: str, warmup: float, decay: float, start: float, final: float, n_steps: int
) -> None:
    found = factors(n_steps, kind=kind, warmup=warmup, decay=decay, start=start, final=final)
    top = round(warmup * n_steps)
    assert found[:top] == sorted(found[:top])
    assert found[top:] == sorted(found[top:], reverse=True)
    assert all(min(start, final) <= factor <= 1 for factor in found)


def test_scores_are_spread_evenly_and_end_with_the_last_step() -> None:
    assert score_steps(4, 100) == (25, 50, 75, 100)
    assert score_steps(1, 7) == (7,)
    assert score_steps(10, 3) == (1, 2, 3)
    assert score_steps(0, 100) == ()


@given(st.integers(1, 50), st.integers(1, 1000))
def test_scores_are_as_many_as_asked_if_there_are_steps(n_scores: int, n_steps: int) -> None:
    found = score_steps(n_scores, n_steps)
    assert len(found) == min(n_scores, n_steps)
    assert found[-1] == n_steps
    assert found[0] >= 1
