"""Data flows one way: folders import from those above them in docs/architecture.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/pdejepa"
ORDER = re.findall(r"^\| `(\w+)/` \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
KNOWN: dict[str, list[str]] = {}


def imported(path: Path) -> set[str]:
    """The folders of this package that a file imports from, also inside functions."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return {parts[1] for name in names if (parts := name.split("."))[0] == "pdejepa" and parts[1:]} & set(ORDER)


def test_all_folders_are_listed() -> None:
    assert sorted(ORDER) == sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_imports_from_those_above_it(folder: str) -> None:
    above = {*ORDER[: ORDER.index(folder) + 1], *KNOWN.get(folder, ())}
    below = {str(path.relative_to(SOURCE)): imported(path) - above for path in (SOURCE / folder).rglob("*.py")}
    assert {path: folders for path, folders in below.items() if folders} == {}


def test_loading_a_model_loads_neither_files_of_data_nor_trainings_nor_solvers_of_others() -> None:
    code = "import sys, pdejepa; pdejepa.load('combined', 'cpu'); print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "pdejepa.forecast.forecaster" in loaded
    unwanted = ("h5py", "pdejepa.baselines", "pdejepa.training", "pdejepa.method", "pdejepa.data")
    assert [name for name in loaded if name.startswith(unwanted)] == []


TWINS = ("method/recipes", "app/commands")  # named like the systems and the rooms that they belong to


def test_no_two_modules_have_one_name() -> None:
    """So that a name is enough to find a file."""
    found = Counter(
        path.stem
        for path in SOURCE.rglob("*.py")
        if path.stem not in ("__init__", "__main__") and not path.relative_to(SOURCE).as_posix().startswith(TWINS)
    )
    assert [name for name, n in found.items() if n > 1] == []
