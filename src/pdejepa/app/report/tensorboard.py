"""The metrics of a run as TensorBoard event files (extra: tensorboard).

    pdejepa report RUN --tensorboard DIR;  tensorboard --logdir DIR
"""

from __future__ import annotations

from pathlib import Path

from pdejepa.core.errors import ResourceError
from pdejepa.core.run_folder import STAGES
from pdejepa.training.metrics_log import read_lines


def write_board(run: Path, out: Path) -> int:
    """Write one event file per stage of `run`; return how many numbers were written."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ResourceError("TensorBoard is not installed. Get it with: pip install 'pdejepa[tensorboard]'") from None
    n = 0
    for stage in STAGES:
        lines = read_lines(run / stage / "metrics.jsonl")
        if not lines:
            continue
        writer = SummaryWriter(str(out / stage))
        for line in lines:
            for kind in ("train", "valid"):
                numbers = {name: value for name, value in line.get(kind, {}).items() if isinstance(value, int | float)}
                for name, value in numbers.items():
                    writer.add_scalar(f"{stage}/{kind}/{name}", value, line["step"])
                n += len(numbers)
        writer.close()
    return n
