"""Budgets of whole trainings: an amount of one thing, which all stages share.

    20s, 3min, 1h, 7       seconds
    500steps               updates of weights
    1e15flops              floating-point operations, see `flops`
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from numbers import Real
from typing import Literal, get_args

from pdejepa.core.errors import ConfigError, UsageError
from pdejepa.training.settings import Budget

Unit = Literal["seconds", "steps", "flops"]
UNITS: tuple[Unit, ...] = get_args(Unit)
TIMES = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
LONGEST_S = 1e8  # three years
LARGEST = 1e30  # of what is counted
NUMBER, WORD = r"\d+(?:\.\d+)?(?:e\+?\d+)?", r"[a-z]*"


@dataclass(frozen=True)
class TotalBudget:
    """An amount for all stages together."""

    unit: Unit
    amount: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.amount, Real) and not isinstance(self.amount, bool)
        is_amount = is_number and 0 < self.amount <= sys.float_info.max
        if self.unit not in UNITS or not is_amount:
            raise ConfigError(
                "a budget is a finite positive number of seconds, steps or flops, "
                f"got {self.amount!r} {self.unit}"
            )

    def __str__(self) -> str:
        return f"{float(self.amount):.15g} {self.unit}"

    def words(self, n_digits: int = 15) -> str:
        """For people: 180 s, 500 steps, 1e15 flops; whole numbers of seconds and steps with all their digits."""
        if self.unit == "flops":
            mantissa, _, exponent = f"{self.amount:.{n_digits - 1}e}".partition("e")
            return f"{float(mantissa):.15g}e{int(exponent)} flops"
        n_digits = 15 if float(self.amount).is_integer() else n_digits
        return f"{self.amount:.{n_digits}g} {'s' if self.unit == 'seconds' else self.unit}"

    @property
    def name(self) -> str:
        """For names of files: 180s, 500steps, 1e15flops."""
        return self.words().replace(" ", "")

    def of_stage(self, share: float) -> Budget:
        """What a stage with that share gets; rather a step too few."""
        amount = self.amount * share
        if self.unit == "steps":
            return Budget(steps=max(1, int(amount * (1 + 1e-9))))
        return Budget(seconds=amount) if self.unit == "seconds" else Budget(flops=amount)


def parse_budget(text: str) -> TotalBudget:
    """A budget as people write it; UsageError for anything else."""
    match = re.fullmatch(rf"({NUMBER})\s*({WORD})", text.strip().lower(), re.ASCII)
    number, word = (float(match[1]), match[2]) if match else (0.0, "")
    if 0 < TIMES.get(word, 0.0) * number < LONGEST_S:
        return TotalBudget("seconds", float(f"{TIMES[word] * number:.12g}"))  # 0.06 min are 3.6 s
    for unit in UNITS[1:]:
        if word in (unit, unit[:-1]) and 1 <= number <= LARGEST:
            return TotalBudget(unit, number)
    raise UsageError(
        f"--budget must be a time such as 20s, 3min or 1h, or a count: 500steps, 1e15flops; got {text!r}."
    )
