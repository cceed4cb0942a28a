"""Ctrl-C and SIGTERM while a stage runs: asked once, stop between two steps; asked twice, stop at once.

A KeyboardInterrupt may come in the middle of an optimiser step, with half of the weights moved.  So the first signal
only raises a flag, which the loop reads when a step is complete.  What is done before the first step (encoding and
rolling out a whole split, warming up, scoring) may take minutes and changes no weights: its loops call `stop_if_asked`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from pdejepa.core.errors import Interrupted
from pdejepa.training.distributed import agree

_ECHO_S = 2.0  # torchrun passes on a Ctrl-C that the terminal has sent to its children already


@dataclass
class StopRequest:
    """Whether somebody wants the training to stop; until the first step is taken, nothing is lost by that."""

    is_set: bool = False
    is_preparing: bool = True


_current: StopRequest | None = None  # of the stage that runs in the main thread


def stop_if_asked() -> None:
    """Raise Interrupted if a stop was asked for and no step was taken yet; under several ranks, all call it."""
    if _current is not None and _current.is_preparing and agree([_current.is_set])[0]:
        raise Interrupted("Stopped before the first step. Start again with the same command.")


@contextlib.contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Listen to SIGINT and SIGTERM inside the block; afterwards they mean what they meant before.

    Signals reach the main thread only; in any other thread the request simply never comes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    echo_s = _ECHO_S if "TORCHELASTIC_RUN_ID" in os.environ else 0.0
    asked_at = 0.0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked_at
        if request.is_set and time.monotonic() - asked_at >= echo_s:
            raise KeyboardInterrupt
        if not request.is_set:
            request.is_set, asked_at = True, time.monotonic()

    global _current
    outer, _current = _current, request
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        _current = outer
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
