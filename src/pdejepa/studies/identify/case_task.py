"""`identify` on the workers of a cluster: a case is a task.

Cases end in any order; a cell keeps them in the order of their trajectories, so one that ended early waits for those
before it.  Values are those of one machine; seconds are those of the worker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from pdejepa.core.cluster import Cluster
from pdejepa.core.device import machine_name
from pdejepa.core.errors import CheckpointError
from pdejepa.forecast.forecaster import Forecaster, load
from pdejepa.forecast.known_examples import Examples
from pdejepa.studies.identify.identification import (
    Case,
    Cell,
    Identification,
    Plan,
    cells_of,
    measured,
    opened,
    write,
)

AND = " and "  # between the machines of a record


def identify_on(
    cluster: Cluster,
    model: Forecaster,
    name: str,
    device: str,
    path: Path,
    plan: Plan,
    report: Callable[[str, int], object] = lambda *_: None,
) -> Identification:
    """Add the missing cases of the plan to the record at `path`.  name: by which workers find the model, or a path."""
    record = opened(path, model, Path(name).name)
    source = str(Path(name).resolve()) if Path(name).exists() else name
    jobs, cells = [], []
    for cell in cells_of(record, model, plan, report):
        report("", min(plan.n, len(cell.cases)))
        for index in range(len(cell.cases), plan.n):
            empty = Cell(cell.split, cell.noise, cell.frames)
            jobs.append((source, record.weights_sha256, device, empty, index))
            cells.append(cell)
    early: dict[tuple[str, int], Case] = {}
    machines = record.machine.split(AND) if any(cell.cases for cell in record.cells) else []
    for number, (case, machine) in cluster.results(case_on_worker, jobs):
        machines += [machine] if machine not in machines else []
        record.machine = AND.join(machines)
        cell = cells[number]
        early[cell.label, case.index] = case
        while (cell.label, len(cell.cases)) in early:
            cell.cases += (early.pop((cell.label, len(cell.cases))),)
        write(record, path)
        report("", 1)
    return record


def case_on_worker(source: str, sha256: str, device: str, cell: Cell, index: int) -> tuple[Case, str]:
    """The task: one case, and the machine that it was measured on."""
    model, examples = _loaded(source, device)
    if str(model.details.get("weights_sha256", "")) != sha256:
        raise CheckpointError(f"A worker finds other weights at {source} than we do. Give a folder that all see.")
    return measured(cell, model, examples, index), machine_name(model.device)


@functools.lru_cache(maxsize=1)
def _loaded(source: str, device: str) -> tuple[Forecaster, Examples]:
    """Kept by a worker from one case to the next, with what was calibrated."""
    model = load(source, device)
    return model, Examples(model)
