"""Whether other programs keep this machine busy; needs no PyTorch, so that it can be asked before that is loaded."""

from __future__ import annotations

import os

BUSY = 0.75  # processes that run or wait, per core, above which time on a CPU is not one's own


def load_and_cores() -> tuple[float, int]:
    """Processes that ran or waited in the last minute (0 where the system does not count them), and cores."""
    counts = getattr(os, "getloadavg", lambda: (0.0,))
    return counts()[0], os.cpu_count() or 1


def is_busy() -> bool:
    load, n_cores = load_and_cores()
    return load > BUSY * n_cores
