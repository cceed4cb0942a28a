"""Settings of the whole process that several threads hold at once."""

from __future__ import annotations

import threading

import pytest
import torch

from pdejepa.core.device import Setting, single_precision


class Box:
    value = 1


def setting() -> Setting[int]:
    Box.value = 1
    return Setting(lambda: Box.value, lambda value: setattr(Box, "value", value), lambda value: value)


def test_the_strictest_wish_is_in_force_and_the_last_one_out_restores() -> None:
    own = setting()
    with own.held(5):
        assert Box.value == 5
        with own.held(3):
            assert Box.value == 5
        with own.held(7):
            assert Box.value == 7
        assert Box.value == 5
    assert Box.value == 1


def test_order_of_leaving_does_not_matter() -> None:
    """Two threads that overlap; kept naively, the second one would restore what the first had set."""
    own, entered, leave = setting(), threading.Event(), threading.Event()

    def first() -> None:
        with own.held(5):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(10)
    with own.held(5):
        leave.set()
        thread.join()
        assert Box.value == 5
    assert Box.value == 1


def test_failures_restore_too() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ZeroDivisionError), single_precision():
            assert torch.get_default_dtype() == torch.float32
            raise ZeroDivisionError
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
