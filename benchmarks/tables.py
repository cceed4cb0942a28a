"""Write result files into documents, between a pair of marks that names the file.

    python benchmarks/tables.py docs/lab.md

A document holds `<!-- table: results/generate-h200.json -->` ... `<!-- end -->`; what stands between them is replaced.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

MARKED = re.compile(r"(<!-- table: (?P<file>[\w./-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generation_table(report: dict[str, Any]) -> str:
    """One row per system: what was made, how long it took, and what share of the copy bandwidth was used."""
    lines = [f"{report['device']}, torch {report['torch']}" + _bandwidth(report) + ".", ""]
    if "trajectories" in report["rows"][0]:
        head = ("system", "trajectories", "seconds", "µs per trajectory and step", "share of copy bandwidth")
        cells = [
            (
                row["system"],
                f"{row['trajectories']:,}",
                f"{row['seconds']:.1f}",
                row.get("us_per_trajectory_step", ""),
                f"{row['share_of_copy_bandwidth']:.0%}" if "share_of_copy_bandwidth" in row else "",
            )
            for row in report["rows"]
        ]
    else:
        head = (
            "system",
            "trajectories/s",
            "compiled",
            "SciPy, fastest as accurate as ours",
            "its seconds",
            "ratio",
            "compiled",
        )
        cells = [
            (row["system"], row["trajectories_per_s"], row.get("compiled_per_s", ""), *_peer(row))
            for row in report["rows"]
        ]
    return "\n".join([*lines, _line(head), _line(["---"] * len(head)), *map(_line, cells)]) + "\n"


def _bandwidth(report: dict[str, Any]) -> str:
    value = report.get("copy_bandwidth")
    return f", copy bandwidth {value / 1e12:.2f} TB/s" if value else ""


def _peer(row: dict[str, Any]) -> tuple[str, ...]:
    if "scipy" not in row:
        return "", "", "", ""
    peer = row["scipy"]
    told = (
        f"{peer['method']} rtol {peer['rtol']:g}, error <= {peer['accuracy']:.0e}, {peer['finished']}/{peer['of']} rows"
    )
    ratios = (f"{row[key]:.0f}x" for key in ("ratio_trajectories_per_s", "ratio_compiled_per_s") if key in row)
    return told, f"{peer['seconds_per_trajectory']:.2f}", *ratios


def _line(cells: Any) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main() -> None:
    for name in sys.argv[1:]:
        document = Path(name)
        text = MARKED.sub(
            lambda match: match[1] + generation_table(json.loads(Path(match["file"]).read_text())) + match[3],
            document.read_text(),
        )
        document.write_text(text)


if __name__ == "__main__":
    main()
