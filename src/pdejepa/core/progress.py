"""How far a long job is: a bar on a terminal, a plain line now and then in a log file.

Everything goes to standard error, so that standard output stays free for results.

    lines      a bar on a terminal, else lines; news between them
    bar        a bar on a terminal, gone when the work is done; no news, and nothing elsewhere
    nothing    nothing
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from typing import Literal, Protocol, TextIO

LINE_EVERY_S = 10.0
BAR_EVERY_S = 0.2  # steps of training may take a millisecond, and a bar must not

Clock = Callable[[], float]
Shown = Literal["lines", "bar", "nothing"]


class Progress(Protocol):
    """What the caller of `progress` gets."""

    def advance(self, n: int = 1) -> None:
        """Count `n` more units as done."""

    def note(self, text: str) -> None:
        """Print one line of news without disturbing the bar."""

    def resize(self, total: int) -> None:
        """There is more or less to do than was thought."""


@contextlib.contextmanager
def progress(
    total: int,
    label: str,
    unit: str = "trajectories",
    shown: Shown = "lines",
    stream: TextIO | None = None,
    clock: Clock = time.monotonic,
) -> Iterator[Progress]:
    """Show the progress of `total` units of work under the name `label`, as the table above says.

    `stream` and `clock` exist for tests; the default is standard error and the monotonic clock, which does
    not jump when somebody sets the time.
    """
    target = sys.stderr if stream is None else stream
    if shown != "nothing" and target.isatty():
        with _bar(total, label, unit, target, stays=shown == "lines") as bar:
            yield bar
        return
    lines = _Lines(total, label, unit, target if shown == "lines" else io.StringIO(), clock)
    try:
        yield lines
    finally:
        lines.finish()


class _Pace:
    """Units per second, without the first ones: they may take a hundred times as long, to compile or to prepare."""

    def __init__(self, now: float) -> None:
        self.start, self.done = now, 0
        self._first: tuple[float, int] | None = None  # when the first units were done, and how many they were

    def advance(self, n: int, now: float) -> None:
        self.done += n
        self._first = self._first or (now, self.done)

    def rate(self, now: float) -> float:
        start, n = self._first if self._first is not None and self.done > self._first[1] else (self.start, 0)
        return (self.done - n) / max(now - start, 1e-9)

    def left(self, total: int, now: float) -> str:
        """`, 0:20 left`; empty as long as only the first units are done."""
        is_known = self._first is not None and self.done > self._first[1]
        return f", {_duration((total - self.done) / self.rate(now))} left" if is_known else ""


class _Lines:
    """Plain lines, at most one every ten seconds and one at the end."""

    def __init__(self, total: int, label: str, unit: str, stream: TextIO, clock: Clock) -> None:
        self.total, self.label, self.unit = total, label, unit
        self.stream, self.clock = stream, clock
        self.printed_at = clock()
        self.pace = _Pace(self.printed_at)

    def advance(self, n: int = 1) -> None:
        now = self.clock()
        self.pace.advance(n, now)
        if now - self.printed_at >= LINE_EVERY_S and self.pace.done < self.total:
            self.printed_at = now
            self._print(f"{self._state(self.pace.rate(now))}{self.pace.left(self.total, now)}")

    def note(self, text: str) -> None:
        self._print(f"{self.label}: {text}")

    def resize(self, total: int) -> None:
        self.total = total

    def finish(self) -> None:
        seconds = self.clock() - self.pace.start
        self._print(f"{self._state(self.pace.done / max(seconds, 1e-9))} in {_duration(seconds)}")

    def _state(self, rate: float) -> str:
        percent = 100 * self.pace.done // self.total if self.total > 0 else 100
        counted = f"{self.pace.done:,} of {self.total:,} {self.unit}"
        return f"{self.label}: {counted} ({percent} %), {_rate(rate)}/s"

    def _print(self, line: str) -> None:
        # A log that went away (closed pipe, full disk) must not end the work it reports on.
        with contextlib.suppress(OSError, ValueError):
            print(line, file=self.stream, flush=True)


@contextlib.contextmanager
def _bar(total: int, label: str, unit: str, stream: TextIO, stays: bool) -> Iterator[Progress]:
    """The same with a live bar; one that does not stay has no news.  Rich is imported here: only terminals need it."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    class Bar:
        def __init__(self, display: RichProgress) -> None:
            self.display = display
            self.task = display.add_task(escape(label), total=total, rate="")
            self.total, self.drawn_at = total, time.monotonic()
            self.pace = _Pace(self.drawn_at)

        def advance(self, n: int = 1) -> None:
            now = time.monotonic()
            self.pace.advance(n, now)
            if now - self.drawn_at >= BAR_EVERY_S:
                self.draw()

        def draw(self) -> None:
            self.drawn_at = time.monotonic()
            rate = f"{_rate(self.pace.rate(self.drawn_at))}/s{self.pace.left(self.total, self.drawn_at)}"
            self.display.update(self.task, total=self.total, completed=self.pace.done, rate=rate)

        def note(self, text: str) -> None:
            if stays:
                self.display.console.print(escape(text), highlight=False)

        def resize(self, total: int) -> None:
            self.total = total

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[rate]}"),
    )
    console, per_s = Console(file=stream), 1 / BAR_EVERY_S
    with RichProgress(*columns, console=console, refresh_per_second=per_s, transient=not stays) as display:
        bar = Bar(display)
        yield bar
        bar.draw()


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def _duration(seconds: float) -> str:
    """`0:07`, `12:30`, `3:05:00`."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"
