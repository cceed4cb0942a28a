"""Failures with a name, a sentence and an exit code.

Every failure that a user can cause or meet is one of these classes. The message is a full sentence: what was
expected, what came, and what to do next. The command line prints it without a traceback and ends with
`exit_code`; a program that uses the library catches the class.

Anything else that escapes is a mistake of ours and ends with code 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class PdejepaError(Exception):
    """Base of all our failures; catching it catches everything that pdejepa raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(PdejepaError):
    """The request itself is wrong: nothing was started and nothing was changed."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration cannot be used. `problems` lists every fault found, not only the first."""

    def __init__(self, message: str, problems: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.problems: tuple[str, ...] = tuple(problems) or (message,)


class ParameterError(UsageError):
    """A physical parameter is missing, unknown, not a number, or outside its physical limits."""


class DataError(PdejepaError):
    """Stored data is missing, damaged, of another format, or does not fit what was asked."""

    exit_code = 3


class CheckpointError(PdejepaError):
    """A checkpoint is missing, damaged, unsafe to open, or belongs to another model."""

    exit_code = 4


class NumericalError(PdejepaError):
    """A computation produced values that are not finite or not trustworthy."""

    exit_code = 5


class ResourceError(PdejepaError):
    """The machine cannot provide what is needed: disk, memory, a device, or a lock held by someone else."""

    exit_code = 6


class Interrupted(PdejepaError):
    """Stopped on request (Ctrl-C or SIGTERM). What was finished before is on disk."""

    exit_code = 7


# (code, word, meaning). The help text of the command line and the documentation print this table.
EXIT_CODES: tuple[tuple[int, str, str], ...] = (
    (0, "ok", "the command did what was asked"),
    (1, "bug", "an unexpected failure; please report it with the output of --debug"),
    (UsageError.exit_code, "usage", "wrong option, configuration or parameter value"),
    (DataError.exit_code, "data", "data missing, damaged or of the wrong kind"),
    (CheckpointError.exit_code, "checkpoint", "checkpoint missing, damaged or of another model"),
    (NumericalError.exit_code, "numerical", "values not finite or not trustworthy"),
    (ResourceError.exit_code, "environment", "disk, memory, device or lock not available"),
    (Interrupted.exit_code, "interrupted", "stopped on request; finished files are intact"),
)


def did_you_mean(word: object, options: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for the nearest of `options`, or an empty string if none is near.

    The comparison ignores case, because `Burgers` for `burgers` is the commonest slip of all.
    """
    by_folded = {option.casefold(): option for option in options}
    near = difflib.get_close_matches(str(word)[:100].casefold(), by_folded, n=1, cutoff=0.6)
    return f", did you mean '{by_folded[near[0]]}'?" if near else ""


class ExtrapolationWarning(UserWarning):
    """A forecast was asked for something that the training data do not cover.

    Shown once per place in a program; `warnings.simplefilter("ignore", ExtrapolationWarning)` switches it off.
    """
