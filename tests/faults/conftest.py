"""Data sets for the tests of `generate` under faults."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.faults.generating import run


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete data set of eleven shards; do not change it."""
    root = tmp_path_factory.mktemp("undisturbed") / "d"
    report = run(root)
    assert report.is_complete
    assert report.n_generated == report.n_trajectories == 36
    return root


@pytest.fixture
def copy(undisturbed: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    shutil.copytree(undisturbed, tmp_path / "copy")
    return tmp_path / "copy"
