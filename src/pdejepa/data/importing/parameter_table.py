"""Parameters of trajectories from a table: CSV with a head line, or JSON.

    nu,alpha            {"nu": [0.1, 0.2], "alpha": [1, 2]}      one list or one number per name
    0.1,1               [{"nu": 0.1, "alpha": 1}, ...]           one object per trajectory
    0.2,2

A CSV column `file` holds names of files; rows are then put in the order of the files that are imported.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdejepa.core.errors import DataError

MAX_BYTES = 500_000_000
FILE = "file"  # the column that names files
TOLD = 5  # rows that a sentence names

Columns = dict[str, np.ndarray]  # name -> (n,) float64


def read_parameters(path: Path, n: int, files: Sequence[Path] = ()) -> Columns:
    """One value per trajectory and name; DataError with the row and the column of the first fault.

    files: those of the trajectories, one each, where every trajectory is a file.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB, and no table of parameters.")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"The table {path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise DataError(f"The table {path} is no text in UTF-8; expected CSV or JSON.") from None
    if not text.strip():
        raise DataError(f"The table {path} is empty; expected a head line with names and {n:,} rows.")
    is_json = path.suffix.lower() == ".json" or text.lstrip()[0] in "[{"
    columns = _from_json(path, text, n) if is_json else _from_csv(path, text, files)
    return _checked(path, columns, n)


def _from_csv(path: Path, text: str, files: Sequence[Path]) -> dict[str, Sequence[Any]]:
    first = text.splitlines()[0]
    separator = max(";\t,", key=first.count) if any(mark in first for mark in ";\t,") else ","
    rows = [row for row in csv.reader(text.splitlines(), delimiter=separator) if any(cell.strip() for cell in row)]
    names = [name.strip() for name in rows[0]]
    if all(_number(name) is not None for name in names):
        raise DataError(f"{path} begins with numbers; expected a head line with the names of the parameters.")
    for at, row in enumerate(rows[1:], start=1):
        if len(row) != len(names):
            commas = " Decimal commas? Write 0.5, not 0,5." if separator == "," and len(row) > len(names) else ""
            raise DataError(f"{path}: row {at} has {len(row)} cells, the head line {len(names)}.{commas}")
    columns: dict[str, Sequence[Any]] = {name: [row[j] for row in rows[1:]] for j, name in enumerate(names)}
    if len(columns) < len(names):
        raise DataError(f"{path} names a column twice: {', '.join(names)}.")
    return _in_order(path, columns, files) if FILE in columns else columns


def _in_order(path: Path, columns: dict[str, Sequence[Any]], files: Sequence[Path]) -> dict[str, Sequence[Any]]:
    """Rows in the order of the files that they name."""
    names = [str(name).strip() for name in columns.pop(FILE)]
    place = {Path(name).name: row for row, name in enumerate(names)}
    if len(place) < len(names):
        raise DataError(f"{path}: the column {FILE} names a file twice.")
    if not files:
        raise DataError(f"{path} has a column {FILE}, but the trajectories are not one to a file. Leave it out.")
    missing = [file.name for file in files if file.name not in place]
    if missing:
        told = ", ".join(missing[:TOLD])
        raise DataError(f"{path} has no row for {len(missing):,} of {len(files):,} files, for example {told}.")
    order = [place[file.name] for file in files]
    return {name: [values[row] for row in order] for name, values in columns.items()}


def _from_json(path: Path, text: str, n: int) -> dict[str, Sequence[Any]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON ({str(error)[:100]}).") from None
    if isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        names = list(data[0])
        odd = [i for i, row in enumerate(data) if set(row) != set(names)]
        if odd:
            raise DataError(f"{path}: entry {odd[0]} has other names than the first one ({', '.join(names)}).")
        return {name: [row[name] for row in data] for name in names}
    if not isinstance(data, dict):
        raise DataError(f'{path} must hold {{"name": [values]}} or a list of {{"name": value}}.')
    return {name: values if isinstance(values, list) else [values] * n for name, values in data.items()}


def _checked(path: Path, columns: Mapping[str, Sequence[Any]], n: int) -> Columns:
    found = {}
    for name, values in columns.items():
        if len(values) != n:
            what = "fewer" if len(values) < n else "more"
            raise DataError(
                f"{path}: {name} has {len(values):,} values for {n:,} trajectories, {what} than there are. "
                "Give one row per trajectory, in their order."
            )
        numbers = [_number(value) for value in values]
        missing = [row + 1 for row, value in enumerate(values) if value is None or str(value).strip() in ("", "nan")]
        if missing:
            told = ", ".join(map(str, missing[:TOLD]))
            raise DataError(f"{path}: {name} is missing in {len(missing):,} rows, for example {told}.")
        wrong = next((row for row, number in enumerate(numbers) if number is None), None)
        if wrong is not None:
            raise DataError(f"{path}: row {wrong + 1}, column {name}: {_fault(values[wrong])}.")
        found[name] = np.array(numbers, dtype=np.float64)
    return found


def _number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and "_" not in str(value) else None


def _fault(value: Any) -> str:
    text = str(value).strip()[:40]
    if text.count(",") == 1 and _number(text.replace(",", ".")) is not None:
        return f"{text!r} has a decimal comma; write {text.replace(',', '.')}"
    return f"{text!r} is not a finite number"
