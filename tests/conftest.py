"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

# Arrays in tests are small, and pytest-xdist already runs a process per core: more threads would only wait for each
# other. Set before PyTorch is imported, and inherited by the commands that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


@pytest.fixture(scope="session")
def tiny_datasets(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`tiny_datasets("heat")`: the folder of a complete tiny data set, made on first use.

    Made once per session, also when pytest-xdist runs several workers: they share the folder, and the lock and
    the resuming of `generate` sort out who makes it. Do not change it; copy it first.
    """
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tiny_datasets"

    @cache
    def make(name: str) -> Path:
        from pdejepa.data.generate.job import GenerateConfig, generate

        generate(GenerateConfig(system=name, out=str(root / name), size="tiny", device="cpu"))
        return root / name

    return make
