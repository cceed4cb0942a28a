"""Which code runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def commit() -> str:
    """The commit of the source tree that runs, `-changed` appended if it differs; empty outside a checkout.

    `PDEJEPA_COMMIT` tells it where the tree was copied without its history, in a container for example.
    """
    if os.environ.get("PDEJEPA_COMMIT"):
        return os.environ["PDEJEPA_COMMIT"]
    place = Path(__file__).parents[3]
    try:
        if not (place / ".git").exists():
            return ""
        run = lambda *words: subprocess.run(  # noqa: E731
            ["git", "-C", str(place), *words], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
        return run("rev-parse", "HEAD") + ("-changed" if run("status", "--porcelain", "src") else "")
    except (OSError, subprocess.SubprocessError):
        return ""
