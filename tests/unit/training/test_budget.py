"""Budgets of whole trainings: how they are written, and what a stage gets of them."""

from __future__ import annotations

import pytest

from pdejepa.core.errors import ConfigError, UsageError
from pdejepa.training.budget import TotalBudget, parse_budget
from pdejepa.training.settings import Budget


@pytest.mark.parametrize(
    ("text", "unit", "amount", "name"),
    [
        ("20S", "seconds", 20, "20s"),
        ("3Min", "seconds", 180, "180s"),
        ("0.5 h", "seconds", 1800, "1800s"),
        ("7", "seconds", 7, "7s"),
        ("2m", "seconds", 120, "120s"),
        ("0.06min", "seconds", 3.6, "3.6s"),  # 3.5999999999999996 otherwise
        ("500steps", "steps", 500, "500steps"),
        ("1 step", "steps", 1, "1steps"),
        (" 64000 Steps", "steps", 64_000, "64000steps"),
        ("1e15flops", "flops", 1e15, "1e15flops"),
        ("2.5e+9 flop", "flops", 2.5e9, "2.5e9flops"),
        ("123456789012345flops", "flops", 123456789012345.0, "1.23456789012345e14flops"),
    ],
)
def test_what_people_write(text: str, unit: str, amount: float, name: str) -> None:
    found = parse_budget(text)
    assert (found.unit, found.amount, found.name) == (unit, amount, name)


@pytest.mark.parametrize(
    "odd",
    [
        *("", "s", "-3s", "0s", "1e400s", "1e9h", "3e-2s", "\uff12s", "nan"),
        *("0steps", "0.5steps", "20stops", "9samples", "1e99flops"),
    ],
)
def test_what_is_no_budget(odd: str) -> None:
    with pytest.raises(UsageError, match="--budget must be a time such as 20s, 3min or 1h, or a count: 500steps"):
        parse_budget(odd)


@pytest.mark.parametrize("amount", [0, -1, float("nan"), float("inf"), True, "3"])
def test_amounts_that_are_refused(amount: float) -> None:
    with pytest.raises(ConfigError, match="a budget is a finite positive number"):
        TotalBudget("steps", amount)


def test_what_a_stage_gets() -> None:
    """Rather a step too few, but one at least; rounding does not cost one."""
    assert TotalBudget("seconds", 90).of_stage(1 / 3) == Budget(seconds=30)
    assert TotalBudget("flops", 9e9).of_stage(1 / 3) == Budget(flops=3e9)
    assert TotalBudget("steps", 10).of_stage(0.39) == Budget(steps=3)
    assert TotalBudget("steps", 30).of_stage(1 - 0.9) == Budget(steps=3)  # 2.9999999999999996
    assert TotalBudget("steps", 1).of_stage(0.5) == Budget(steps=1)
