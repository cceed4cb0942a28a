"""Draw docs/pictures/nine_systems.png: one test trajectory of every system.

    python tools/make_pictures.py

1-D systems as space-time images (time upwards), 2-D systems as three frames of their first channel.  The flows are
simulated on coarser grids than the data: 128 x 128.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pdejepa import systems
from pdejepa.core.files import write_aside
from pdejepa.draw.colours import scale_of
from pdejepa.draw.panels import LARGE, SMALL, draw_mesh, draw_plane, new_figure

OUT = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "nine_systems.png"
INDEX = {"burgers": 7, "combined": 3, "heterns": 1}  # test trajectories that show what the system can do


def solved(name: str) -> tuple[systems.System, np.ndarray, np.ndarray]:
    """A system, the times and the fields (T,C,*grid) of one test trajectory, all raw frames of the 1-D systems."""
    system = systems.get(name, solver_grid=128, dt=1 / 60) if name == "heterns" else systems.get(name).at_size("tiny")
    u0, xi = system.sample("test", INDEX.get(name, 0))
    times = system.raw_times if system.ndim == 1 else system.times
    if name == "wave_b":
        times = times[:60]
    fields = torch.Tensor(system.solve(u0, xi, times=times))[0]
    return system, times.numpy(), fields.float().numpy()


def main() -> None:
    figure = new_figure(11.0, 6.6, "constrained")
    for cell, name in zip(figure.subfigures(3, 3).flat, systems.NAMES, strict=True):
        system, times, fields = solved(name)
        axes = [axis.numpy() for axis in system.axes.values()]
        cell.suptitle(system.title, fontsize=LARGE, x=0.02, ha="left", fontweight="bold")
        scale = scale_of(fields[:, 0])
        if system.ndim == 1:
            panel = cell.subplots(1, 1)
            draw_mesh(panel, axes[0], times, fields[:, 0], scale)
            panel.set_xlabel("x", fontsize=SMALL, labelpad=0)
            panel.set_ylabel("t", fontsize=SMALL, rotation=0)
            panel.tick_params(labelsize=SMALL)
            continue
        last = len(times) - 1
        for panel, frame in zip(cell.subplots(1, 3), (0, last // 3, last), strict=True):
            draw_plane(panel, axes, fields[frame, 0], scale)
            panel.set_title(f"t = {times[frame]:.3g}", fontsize=SMALL, pad=2)
    with write_aside(OUT) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    print(OUT)


if __name__ == "__main__":
    main()
