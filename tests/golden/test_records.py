"""Nothing moves: small trainings, forecasts and data sets give the numbers that are on record.

On the machine and the libraries of the record every bit is compared, elsewhere four digits (two in bfloat16).  Records
are made again only in a commit that says what moves, and why: `python -m tests.golden.make`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pdejepa import baselines, systems
from tests.golden import made

DIGITS, DIGITS_BF16 = 1e-4, 2e-2
LONG = ("heterns", "vorticity")
LONG_STAGES = (*LONG, "burgers", "wave_b", "wave_b-history1", "combined-vanilla")


def slow_where_long(names: Iterable[str], long: Sequence[str] = LONG) -> list[Any]:
    """The same; those that take long are slow tests."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in long)) for name in names]


@pytest.mark.parametrize("case", slow_where_long(made.CASES, LONG_STAGES))
def test_stages(case: str, tmp_path: Path) -> None:
    found = made.on_one_thread(made.stages, case, tmp_path / "run")
    compare(found, "stages", case, DIGITS_BF16 if case.endswith("bf16") else DIGITS)


@pytest.mark.parametrize("place", [made.PLACES[0], pytest.param(made.PLACES[1], marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", baselines.NAMES)
def test_solvers(name: str, place: str, tmp_path: Path) -> None:
    found = made.on_one_thread(made.solvers, name, tmp_path / "run", place)
    compare(found, "solvers", f"{name}-{place}", DIGITS)


@pytest.mark.parametrize("name", made.MODELS)
def test_forecasts(name: str) -> None:
    compare(made.on_one_thread(made.forecasts, name), "forecasts", name, DIGITS)


@pytest.mark.slow
@pytest.mark.parametrize("name", made.MODELS)
def test_errors(name: str, tmp_path: Path) -> None:
    compare(made.on_one_thread(made.errors, name, tmp_path), "errors", name, DIGITS)


@pytest.mark.parametrize("name", slow_where_long(systems.NAMES))
def test_data(name: str, tiny_datasets: Callable[[str], Path]) -> None:
    compare(made.on_one_thread(made.data, tiny_datasets(name)), "data", name, DIGITS)


def test_a_moved_number_is_noticed() -> None:
    record = made.read("forecasts")["combined"]
    assert list(differences(record, record, 0.0)) == []
    moved = {**record, "test": {**record["test"], "times": [value * (1 + 1e-3) for value in record["test"]["times"]]}}
    assert next(differences(moved, record, DIGITS)).startswith("test.times[1]: ")
    assert list(differences(moved, record, 1e-2)) == []
    assert list(differences({}, record, DIGITS)) == ["test: missing", "ood: missing"]


def compare(found: dict[str, Any], kind: str, case: str, digits: float) -> None:
    """Bit for bit where the record was made, to the digits elsewhere; hashes only where bits are compared."""
    records = made.read(kind)
    is_same = records["machine"] == made.machine()
    expected = records[case]
    if not is_same:
        found.pop("data", None), expected.pop("data", None)
    moved = list(differences(found, expected, 0.0 if is_same else digits))
    assert not moved, f"{case} moved: {'; '.join(moved[:5])} ({len(moved)} values)"


def differences(found: Any, expected: Any, digits: float, path: str = "") -> Iterator[str]:
    """What is not as expected, by its path; numbers may differ by `digits` of the largest of their list."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            name = f"{path}.{key}".lstrip(".")
            if key not in found or key not in expected:
                yield f"{name}: {'missing' if key not in found else 'new'}"
            else:
                yield from differences(found[key], expected[key], digits, name)
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        numbers = [abs(value) for value in expected if isinstance(value, float)]
        allowed = digits * max(numbers, default=0.0)
        for number, (now, before) in enumerate(zip(found, expected, strict=True)):
            is_number = isinstance(now, float) and isinstance(before, float)
            if not (abs(now - before) <= allowed if is_number else now == before):
                yield f"{path}[{number}]: {now!r}, was {before!r}"
    elif found != expected:
        yield f"{path}: {found!r}, was {expected!r}"
