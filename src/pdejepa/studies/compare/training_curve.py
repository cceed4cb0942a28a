"""How the error on valid fell while a competitor trained: (seconds, score), from the files of its stages.

Only scores of forecast fields can be shown together: those of a latent loss, or of codes that are known on train
only, are left out.  Where a budget counts set-up and trials, what is not a stage stands before the first one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pdejepa.training.metrics_log import read_lines


def curve(
    folder: Path, report: Mapping[str, Mapping[str, Any]], field_stages: Collection[str], total: float | None = None
) -> list[dict[str, float | None]]:
    """Scores of the stages `field_stages` of a training in `folder`.

    report: seconds of every stage.  total: all seconds, where more than those of the stages count.
    """
    own = sum(part["seconds"] for part in report.values())
    passed, found = max(0.0, (total or own) - own), []
    for name, part in report.items():
        if name in field_stages:
            found += [
                {"seconds": round(passed + seconds, 3), "score": score}
                for seconds, score in _scores(folder / name, part["seconds"])
            ]
        passed += part["seconds"]
    return found


def _scores(stage: Path, seconds: float) -> list[tuple[float, float | None]]:
    """Scores of a stage and when they were known; `seconds` of what is fitted at once."""
    when = {line["step"]: line["seconds"] for line in read_lines(stage / "timings.jsonl")}
    lines = [line for line in read_lines(stage / "metrics.jsonl") if "valid" in line]
    return [(when.get(line["step"], seconds), line["valid"].get("score")) for line in lines]
