"""Ctrl-C and SIGTERM while a stage runs: asked once, stop as soon as nothing is lost; asked twice, stop at once.

A KeyboardInterrupt may come in the middle of an optimiser step, with half of the weights moved.  So the first signal
only raises a flag, which the loop reads when a step is complete.  What is done before the first step (encoding and
rolling out a whole split, warming up, scoring) may take minutes and changes no weights: its loops call `stop_if_asked`.

Where a step takes longer than GRACE_S (large networks on a CPU), it is given up while its gradients are computed: the
weights are still those of the step before, which is saved, and a resumed training computes the same step again.
Python runs signal handlers between two of its own operations, and a backward pass is one operation, unless it calls
Python: so where steps are long the blocks of networks get hooks that do nothing else (`let_signals_in`).

A score is given up likewise; the training goes on from the latest checkpoint, since only a scored step is saved.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from pdejepa.core.errors import Interrupted
from pdejepa.training.distributed import agree, n_ranks

GRACE_S = 1.0  # for the step that runs when a stop is asked for
_ECHO_S = 2.0  # torchrun passes on a Ctrl-C that the terminal has sent to its children already


@dataclass
class StopRequest:
    """Whether somebody wants the training to stop; until the first step is taken, nothing is lost by that."""

    is_set: bool = False
    is_preparing: bool = True
    may_give_up: bool = False  # gradients or scores are computed: the weights are those of the finished steps


class StepGivenUp(KeyboardInterrupt):
    """A stop was asked for, and the step in progress takes too long to wait for it; no weight was changed by it."""


_BEFORE = "Stopped before the first step. Start again with the same command."
_current: StopRequest | None = None  # of the stage that runs in the main thread


def stop_if_asked() -> None:
    """Raise Interrupted if a stop was asked for and no step was taken yet; under several ranks, all call it."""
    if _current is not None and _current.is_preparing and agree([_current.is_set])[0]:
        raise Interrupted(_BEFORE)


@contextlib.contextmanager
def may_be_given_up() -> Iterator[None]:
    """Inside, no weight changes, and StepGivenUp may be raised."""
    request = _current
    if request is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    request.may_give_up = True
    try:
        yield
    finally:
        request.may_give_up = False


def let_signals_in(network: nn.Module) -> list[RemovableHandle]:
    """Let Python look for signals in backward passes, at every block of a list of blocks; handles to remove it."""

    def watch(_block: nn.Module, _arguments: Any, out: Any) -> None:
        if isinstance(out, Tensor) and out.requires_grad:
            out.register_hook(_look)

    lists = [part for part in network.modules() if isinstance(part, nn.ModuleList | nn.Sequential)]
    return [block.register_forward_hook(watch) for block in {id(b): b for part in lists for b in part}.values()]


def _look(_gradient: Tensor) -> None:
    """Nothing: Python runs the handlers of pending signals here."""


class _Reminder:
    """Lets the handler of a signal run once more, GRACE_S after the first time."""

    def __init__(self) -> None:
        self.is_due = False
        self._timer: threading.Timer | None = None

    def start(self, number: int) -> None:
        self._timer = threading.Timer(GRACE_S, self._remind, (number,))
        self._timer.daemon = True
        self._timer.start()

    def _remind(self, number: int) -> None:
        self.is_due = True
        _thread.interrupt_main(signal.Signals(number))

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


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
    asked_at, reminder = 0.0, _Reminder()

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked_at
        if reminder.is_due:
            reminder.is_due = False
            if request.may_give_up:
                raise StepGivenUp
            if request.is_preparing:
                raise KeyboardInterrupt
        elif request.is_set and time.monotonic() - asked_at >= echo_s:
            raise KeyboardInterrupt
        elif not request.is_set:
            request.is_set, asked_at = True, time.monotonic()
            if n_ranks() == 1:  # several stop together, after a step
                reminder.start(number)

    global _current
    outer, _current = _current, request
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        reminder.cancel()
        _current = outer
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
