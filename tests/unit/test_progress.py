"""Progress is quiet in a log, lively on a terminal, and never ends the work it reports on."""

from __future__ import annotations

import io

import pytest

from pdejepa.core.progress import _duration, progress


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


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0:00"), (7.4, "0:07"), (750, "12:30"), (11100, "3:05:00")]
)
def test_duration(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
