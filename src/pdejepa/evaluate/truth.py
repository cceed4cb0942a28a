"""Where the truth comes from that a solver is compared with.

    the data set that is named            --data DIR, --from DIR:test:3
    the system of its problem             made in memory, any trajectory, any parameters
    the data set that it was trained on   where no system is known: RUN/data.json tells the folder and its hash
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdejepa.core.errors import DataError
from pdejepa.core.files import MANIFEST_NAME, read_json, sha256_file
from pdejepa.core.run_folder import RunFolder
from pdejepa.data.source import Generated, Stored, Trajectories
from pdejepa.data.well.reader import Dataset
from pdejepa.evaluate.cases import Case, find_case, parse_source
from pdejepa.forecast.locate import run_folder
from pdejepa.systems import is_known

if TYPE_CHECKING:
    from pdejepa.baselines.inference import PublishedSolver
    from pdejepa.forecast.forecaster import Forecaster

OTHERWISE = "Name a data set: --data DIR, or --from DIR:test:3."


def has_system(solver: Forecaster | PublishedSolver) -> bool:
    """Whether the equation of a solver is known here, so that its truth can be made."""
    return is_known(solver.problem.name)


def source_of(solver: Forecaster | PublishedSolver, data: Dataset | Trajectories | None = None) -> Trajectories:
    """Trajectories to compare a solver with; see the table above."""
    if isinstance(data, Trajectories):
        return data
    if data is not None:
        return Stored(data)
    return Generated(solver.system) if has_system(solver) else Stored.open(trained_on(solver))


def case_of(solver: Any, source: str, changes: Mapping[str, float]) -> Case:
    """The trajectory that `source` names, SPLIT:INDEX or DIR:SPLIT:INDEX, with changed parameters."""
    if has_system(solver):
        return find_case(source, solver.system, changes, solver.device)
    folder, split, index = parse_source(source)
    return find_case(f"{folder or trained_on(solver)}:{split}:{index}", solver.problem, changes, solver.device)


def trained_on(solver: Any) -> Path:
    """The folder of the data that a solver was trained on; DataError if it is not known, gone, or has changed."""
    name, folder = solver.problem.name, getattr(solver, "folder", None)
    try:
        told = read_json(RunFolder(run_folder(folder)).data) if folder is not None else {}
        root, digest = Path(str(told["folder"])), str(told["hash"])
    except (ValueError, KeyError, TypeError):
        raise DataError(f"The equation of {name} is not known here, nor where its data are. {OTHERWISE}") from None
    if not root.is_dir():
        raise DataError(f"{name} was trained on {root}, which is not there any more. {OTHERWISE}")
    manifest = root / MANIFEST_NAME
    if manifest.exists() and sha256_file(manifest) != digest:
        raise DataError(f"The data in {root} are others than those that {name} was trained on. {OTHERWISE}")
    return root
