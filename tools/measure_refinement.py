"""Measure how far the benchmarks' discretisations are from finer ones, and write results/refinement.json.

    python tools/measure_refinement.py [NAME ...]       about 15 minutes on one idle CPU core

A stepped system's grid defines its benchmark; `refinement_report` of the system says what stored fields are compared
with.  The rows of `ROWS` are solved at paper size, one at a time.  `tools/make_systems.py` puts the numbers into
docs/systems/NAME.md.

Not measured, because of the cost: more than one flow for each viscosity of HeterNS (137 s a row), Vorticity against a
grid finer than 512 x 512 (about nine minutes a row), which the viscosities below 5e-4 would need.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pdejepa import systems
from pdejepa.core.errors import ConfigError
from pdejepa.core.files import write_json

OUT = Path(__file__).resolve().parent.parent / "results" / "refinement.json"
ROWS: dict[str, dict[str, list[int]]] = {
    "burgers": {"train": list(range(24)), "ood": [0, 1, 2, 3]},
    "gray_scott": {"train": list(range(24)), "ood": list(range(8))},
    "heterns": {"train": [1, 7, 13]},  # viscosity 1e-5, 1e-4, 1e-3 with forcing frequency 2
    "vorticity": {"train": [0, 1, 2, 3], "bridge": [0, 1], "ood": [0, 11]},
}


def measure(name: str, rows: dict[str, list[int]]) -> Iterator[dict[str, Any]]:
    """One line per row: where it stands, its first parameter, what it was compared with, the relative L2 difference."""
    system = systems.get(name)
    for split, numbers in rows.items():
        for row in numbers:
            u0, xi = system.sample(split, row)
            fields = system.solve(u0, xi).as_subclass(Tensor)
            first = system.parameter_names[0]
            for told, error in system.refinement_report(u0, xi, fields).items():
                yield {"split": split, "row": row, first: float(f"{float(xi[0, 0]):.4g}"), "told": told, "error": error}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these of {', '.join(ROWS)}")
    names = parser.parse_args().names or list(ROWS)
    unknown = sorted(set(names) - set(ROWS))
    if unknown:
        raise ConfigError(f"{', '.join(unknown)} has no error in space to measure; choose from {', '.join(ROWS)}.")
    torch.set_num_threads(1)
    known = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name in names:
        begun, lines = time.monotonic(), []
        for line in measure(name, ROWS[name]):
            lines.append(line | {"error": float(f"{line['error']:.4g}")})
            print(name, lines[-1], flush=True)
        known[name] = {"rows": lines, "seconds": round(time.monotonic() - begun), "device": "one CPU core"}
        write_json(OUT, dict(sorted(known.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
