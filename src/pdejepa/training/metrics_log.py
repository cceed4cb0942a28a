"""The lines that a stage writes while it trains.

Lines of metrics.jsonl: {"step": 20, "train": {"loss": 0.1, ...}} and {"step": 50, "valid": {"score": 0.2, ...}}, where
`step` counts finished steps and a value that is not finite is null.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pdejepa.core.errors import ResourceError
from pdejepa.core.files import is_disk_full, write_aside


def append_line(path: Path, data: Mapping[str, Any]) -> None:
    """Add one line of JSON.  Values that are not finite become null, because JSON has no word for them."""
    try:
        with path.open("ab") as stream:
            stream.write((json.dumps(_plain(data), allow_nan=False) + "\n").encode())
    except OSError as error:
        if is_disk_full(error):
            raise ResourceError(
                f"Disk full while writing {path}. Free some space, then run the same command again."
            ) from error
        raise


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All complete lines; a line that a killed writer left unfinished is passed over."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for line in raw.splitlines(keepends=True):
        data = _parse(line)
        if data is not None:
            found.append(data)
    return found


def cut_metrics(path: Path, step: int) -> int:
    """Cut metrics.jsonl back to what was known after `step` steps; return how many steps it was ahead."""
    lines = read_lines(path)
    n_ahead = max([0, *(line["step"] - step for line in lines)])
    if path.exists():
        kept = [json.dumps(line) + "\n" for line in lines if line["step"] <= step]
        with write_aside(path) as temporary:
            temporary.write_bytes("".join(kept).encode())
    return n_ahead


def sync(path: Path) -> None:
    """Wait until the content is on the disk."""
    if path.exists():
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    is_ours = isinstance(data, dict) and type(data.get("step")) is int
    return data if is_ours else None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
