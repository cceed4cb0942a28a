"""Progress is quiet in a log, lively on a terminal, and never ends the work it reports on."""

from __future__ import annotations

import io

import pytest

from pdejepa.core.progress import Shown, _duration, progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_are_rare() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress(100, "generate heat", stream=stream, clock=clock) as bar:
        for _ in range(100):
            clock.now += 0.25
            bar.advance()
    assert stream.getvalue().splitlines() == [
        "generate heat: 40 of 100 trajectories (40 %), 4/s, 0:15 left",
        "generate heat: 80 of 100 trajectories (80 %), 4/s, 0:05 left",
        "generate heat: 100 of 100 trajectories (100 %), 4/s in 0:25",
    ]


def test_notes_and_failures() -> None:
    stream, clock = io.StringIO(), Clock()
    with (
        pytest.raises(ValueError, match="x"),
        progress(4, "a", unit="files", stream=stream, clock=clock) as bar,
    ):
        clock.now = 2.0
        bar.advance(3)
        bar.note("2 solves failed")
        raise ValueError("x")
    assert stream.getvalue().splitlines() == ["a: 2 solves failed", "a: 3 of 4 files (75 %), 1.5/s in 0:02"]


def test_nothing_to_do() -> None:
    stream = io.StringIO()
    with progress(0, "a", stream=stream):
        pass
    assert "0 of 0 trajectories (100 %)" in stream.getvalue()


def test_a_closed_log_does_not_end_the_work() -> None:
    stream = io.StringIO()
    with progress(1, "a", stream=stream, clock=Clock()) as bar:
        stream.close = lambda: None  # type: ignore[method-assign]
        stream.write = _broken  # type: ignore[method-assign]
        bar.note("lost")
        bar.advance()


def _broken(_text: str) -> int:
    raise BrokenPipeError


def test_bar_on_a_terminal() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with progress(3, "a [label]", unit="files", stream=stream) as bar:
        bar.advance(2)
        bar.note("news [of] today")
        bar.advance()
    text = stream.getvalue()
    assert "a [label]" in text
    assert "news [of] today" in text
    assert "3/3" in text
    assert "files" in text


def test_a_bar_that_passes_leaves_nothing_and_has_no_news() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with progress(3, "a", shown="bar", stream=stream) as bar:
        bar.note("news")
        bar.resize(2)
        bar.advance(2)
    assert "2/2" in stream.getvalue()
    assert "news" not in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K")  # the line is wiped


@pytest.mark.parametrize("shown", ["bar", "nothing"])
def test_logs_have_no_bars(shown: Shown) -> None:
    stream = io.StringIO()
    with progress(3, "a", shown=shown, stream=stream) as bar:
        bar.advance(3)
        bar.note("news")
    assert stream.getvalue() == ""


def test_terminals_are_left_alone_if_nothing_is_to_be_shown() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with progress(3, "a", shown="nothing", stream=stream) as bar:
        bar.advance(3)
    assert stream.getvalue() == ""


def test_there_may_be_more_to_do_than_was_thought() -> None:
    stream, clock = io.StringIO(), Clock()
    with progress(3, "a", stream=stream, clock=clock) as bar:
        clock.now = 5.0
        bar.advance()
        clock.now = 10.0
        bar.resize(4)
        bar.advance()
    assert stream.getvalue().splitlines()[0] == "a: 2 of 4 trajectories (50 %), 0.2/s, 0:10 left"


def test_a_slow_first_step_promises_nothing() -> None:
    """It compiles for a minute; what is left is known from the steps after it, two a second."""
    stream, clock = io.StringIO(), Clock()
    with progress(61, "a", "steps", stream=stream, clock=clock) as bar:
        for seconds in (60.0, *[0.5] * 60):
            clock.now += seconds
            bar.advance()
    assert stream.getvalue().splitlines() == [
        "a: 1 of 61 steps (1 %), 0.0167/s",
        "a: 21 of 61 steps (34 %), 2/s, 0:20 left",
        "a: 41 of 61 steps (67 %), 2/s, 0:10 left",
        "a: 61 of 61 steps (100 %), 0.678/s in 1:30",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0:00"), (7.4, "0:07"), (750, "12:30"), (11100, "3:05:00")]
)
def test_duration(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
