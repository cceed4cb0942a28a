"""What the tests of `generate` under faults share: a cheap data set, ways to disturb it, and ways to compare."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pdejepa
from pdejepa.core.files import Manifest
from pdejepa.data.generate.job import GenerateConfig, GenerateReport, generate
from pdejepa.data.well import writer

SOURCE = str(Path(pdejepa.__file__).parents[1])
WORDS = ["counts.train=160", "counts.valid=20", "counts.test=20", "counts.ood=20", "rows_per_file=40"]


def config(out: Path, **changes: Any) -> GenerateConfig:
    """Eleven shards of a system that costs nothing."""
    base: dict[str, Any] = {
        "system": "advection",
        "out": str(out),
        "device": "cpu",
        "rows_per_file": 4,
        "counts": {"train": 18, "valid": 6, "test": 6, "ood": 6},
    }
    return GenerateConfig(**{**base, **changes})


def run(out: Path, said: list[str] | None = None, **changes: Any) -> GenerateReport:
    return generate(config(out, **changes), (said if said is not None else []).append)


def manifest_bytes(root: Path) -> bytes:
    assert Manifest.read(root).verify(root) == []
    return (root / "manifest.json").read_bytes()


def leftovers(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if ".tmp-" in path.name]


DISTURBED = """
import os, signal, sys
from pdejepa.app.cli import main
from pdejepa.data.well import writer

number, what = int(sys.argv[1]), sys.argv[2]
fill, filled = writer._Writer._fill, []

def disturbed(self, *args):
    fill(self, *args)
    filled.append(1)
    if len(filled) == number:
        if what == "HOLD":
            print("holding", flush=True)
            sys.stdin.readline()
        else:
            os.kill(os.getpid(), signal.Signals[what])

writer._Writer._fill = disturbed
sys.exit(main(sys.argv[3:]))
"""


def start(out: Path, number: int = 0, what: str = "HOLD", words: Sequence[str] = ()) -> subprocess.Popen[str]:
    """`pdejepa generate` in another process. In the middle of writing its shard `number` (from 1; 0: never) it gets
    the signal `what`, or, with HOLD, prints a line and waits for one: no test depends on how fast a machine is."""
    words = ["generate", "combined", "--out", str(out), "--device", "cpu", *WORDS, *words]
    return subprocess.Popen(
        [sys.executable, "-c", DISTURBED, str(number), what, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])},
    )


def stop_at(number: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise `error` in the middle of writing the shard of that number, counted from 1."""
    calls = {"n": 0}
    fill = writer._Writer._fill

    def failing(self: writer._Writer, *args: Any) -> None:
        calls["n"] += 1
        fill(self, *args)
        if calls["n"] == number:
            raise error

    monkeypatch.setattr(writer._Writer, "_fill", failing)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
