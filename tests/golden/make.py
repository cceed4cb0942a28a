"""Make golden records anew: python -m tests.golden.make stages solvers forecasts errors data compiled_parts

Only in a commit that says which numbers move, and why.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pdejepa import baselines, systems
from pdejepa.app.cli import main
from tests.golden import made
from tests.golden.compiled import compiled_parts
from tests.golden.made import Record


def stages() -> Record:
    with tempfile.TemporaryDirectory() as folder:
        return {case: made.on_one_thread(made.stages, case, Path(folder) / case) for case in made.CASES}


def solvers() -> Record:
    found: Record = {}
    with tempfile.TemporaryDirectory() as folder:
        for place in made.PLACES:
            for name in baselines.NAMES:
                found[f"{name}-{place}"] = made.on_one_thread(made.solvers, name, Path(folder) / place / name, place)
    return found


def forecasts() -> Record:
    return {name: made.on_one_thread(made.forecasts, name) for name in made.MODELS}


def errors() -> Record:
    with tempfile.TemporaryDirectory() as folder:
        return {name: made.on_one_thread(made.errors, name, Path(folder)) for name in made.MODELS}


def data() -> Record:
    found: Record = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in systems.NAMES:
            out = Path(folder) / name
            assert main(["generate", name, "--size", "tiny", "--device", "cpu", "--out", str(out)]) == 0
            found[name] = made.data(out)
    return found


MAKERS: dict[str, Callable[[], Record]] = {
    "stages": stages,
    "solvers": solvers,
    "forecasts": forecasts,
    "errors": errors,
    "data": data,
    "compiled_parts": compiled_parts,
}

if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in MAKERS]
    if unknown:
        sys.exit(f"Unknown: {', '.join(unknown)}. Choose of {', '.join(MAKERS)}.")
    for name in sys.argv[1:] or MAKERS:
        made.write(name, MAKERS[name]())
