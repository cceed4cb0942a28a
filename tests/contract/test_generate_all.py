"""Every system: a generated data set holds what the system computes, and says so consistently."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from pdejepa import systems
from pdejepa.core.files import Manifest
from pdejepa.data.generate.layout import GenerateConfig, Plan
from pdejepa.data.well.reader import Dataset
from pdejepa.data.well.validate import check_folder
from pdejepa.data.well.writer import write_shard
from pdejepa.solve.outcome import Outcome

Make = Callable[[str], Path]
SLOW = ("vorticity", "heterns")  # solving everything a second time would take minutes
LONG = (*SLOW, "burgers", "gray_scott")  # of these only test is solved a second time; all splits are written alike
# A row solved alone may take other code paths in vectorised kernels; chaos does the rest in the flows.
ALONE = {"vorticity": 1e-4, "heterns": 1e-4}

NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in systems.NAMES]
pytestmark = pytest.mark.parametrize("name", NAMES)


def plan_of(name: str, root: Path) -> Plan:
    return Plan.of(GenerateConfig(system=name, out=str(root), size="tiny"))


def test_files_hold_what_the_system_computes(name: str, tiny_datasets: Make) -> None:
    root = tiny_datasets(name)
    plan = plan_of(name, root)
    system = plan.system
    with Dataset.open(root) as data:
        assert data.system_name == name
        assert set(data.splits) == {split.name for split in plan.splits}
        assert data.field_names == system.fields
        assert data.parameter_names == system.parameter_names
        assert data.build_system() == system
        for split in plan.splits:
            assert data.n(split.name) == plan.count(split)
            if name in LONG and split.name != "test":
                continue
            n = min(data.n(split.name), system.chunk[0])
            made = system.generate(split.name, n=n)
            np.testing.assert_array_equal(data.fields(split.name, range(n)), made.fields.numpy())
            np.testing.assert_array_equal(data.xi(split.name)[:n], made.xi.numpy())
            np.testing.assert_array_equal(data.column(split.name, "solver_status")[:n], made.status.numpy())
            np.testing.assert_array_equal(data.column(split.name, "attempt")[:n], made.attempt.numpy())
            np.testing.assert_array_equal(data.column(split.name, "environment_id")[:n], made.environment.numpy())


def test_one_trajectory_alone(name: str, tiny_datasets: Make) -> None:
    with Dataset.open(tiny_datasets(name)) as data:
        system, stored = data.build_system(), data.read("test", 3)
    alone = system.generate("test", n=1, start=3)
    u = alone.fields[0].numpy()
    error = np.linalg.norm((u - stored.fields).ravel()) / np.linalg.norm(u.ravel())
    assert error <= ALONE.get(name, 1e-6)
    assert stored.xi == {key: float(value) for key, value in system.named(alone.xi).items()}
    np.testing.assert_allclose(stored.times, system.times.numpy(), rtol=1e-7)
    for axis, nodes in system.axes.items():
        np.testing.assert_allclose(stored.axes[axis], nodes.numpy(), rtol=1e-6, atol=1e-6)


def test_constant_fields(name: str, tiny_datasets: Make) -> None:
    with Dataset.open(tiny_datasets(name)) as data:
        system, stored = data.build_system(), data.read("test", 2)
    if system.structure.forcing != "constant":
        assert stored.constant_fields == {}
        return
    like = torch.empty((1, 1, *system.grid), dtype=torch.float64)
    expected = system.forcing(0.0, system.xi(stored.xi), like)[0, 0].float().numpy()
    np.testing.assert_array_equal(stored.constant_fields["forcing"], expected)


def test_statistics(name: str, tiny_datasets: Make) -> None:
    root = tiny_datasets(name)
    stats = yaml.safe_load((root / "stats.yaml").read_text())  # the reader the official loader uses
    with Dataset.open(root) as data:
        fields = data.fields("train").astype(np.float64)
        constants = [data.read("train", row).constant_fields for row in range(data.n("train"))]
        for channel, field in enumerate(data.field_names):
            u = fields[:, :, channel]
            for suffix, values in (("", u), ("_delta", np.diff(u, axis=1))):
                _compare(stats, suffix, field, values)
        for field in constants[0]:
            _compare(stats, "", field, np.stack([one[field] for one in constants]).astype(np.float64))
            assert field not in stats["mean_delta"]


def _compare(stats: dict[str, dict[str, float]], suffix: str, field: str, values: np.ndarray) -> None:
    scale = values.std()
    assert stats[f"mean{suffix}"][field] == pytest.approx(values.mean(), rel=1e-10, abs=1e-12 * scale)
    assert stats[f"std{suffix}"][field] == pytest.approx(scale, rel=1e-11)
    assert stats[f"rms{suffix}"][field] == pytest.approx(np.sqrt(np.mean(values**2)), rel=1e-11)


def test_the_folder_proves_itself(name: str, tiny_datasets: Make) -> None:
    root = tiny_datasets(name)
    plan, manifest = plan_of(name, root), Manifest.read(root)
    products = {"config.json", "stats.yaml", "README.md", "picture.png"}
    assert set(manifest.files) == {piece.path for piece in plan.pieces} | products
    assert manifest.verify(root) == []
    assert [str(problem) for problem in check_folder(root)] == []
    generation = json.loads((root / "generation.json").read_text())
    counts = [n for split in generation["outcomes"].values() for n in split.values()]
    assert sum(counts) == sum(plan.count(split) for split in plan.splits)
    usable = {outcome.label for outcome in Outcome if outcome.usable}
    assert {label for split in generation["outcomes"].values() for label in split} <= usable


def test_the_card_tells_what_it_is(name: str, tiny_datasets: Make) -> None:
    root = tiny_datasets(name)
    plan, text = plan_of(name, root), (root / "README.md").read_text()
    system = plan.system
    assert system.equation in text
    assert system.expect in text
    assert system.reference.refined in text
    for word in (*system.parameter_names, *(split.name for split in plan.splits), *system.fields):
        assert f"`{word}`" in text
    assert ("not the benchmark's grid" in text) == hasattr(system, "solver_grid")


def test_nothing_of_the_machine_is_in_the_files(name: str, tiny_datasets: Make) -> None:
    root = tiny_datasets(name)
    words = [socket.gethostname().encode(), str(root.parent).encode(), b"cuda"]
    for path in Manifest.read(root).files:
        content = (root / path).read_bytes()
        assert not [word for word in words if len(word) > 3 and word in content], path


def test_a_shard_has_the_same_bytes_when_written_again(name: str, tiny_datasets: Make, tmp_path: Path) -> None:
    if name in SLOW:
        pytest.skip("the shard writer is the same for all; solving the flows again takes minutes")
    root = tiny_datasets(name)
    plan = plan_of(name, root)
    piece = plan.pieces[1]
    write_shard(plan, piece, tmp_path / "again.hdf5", torch.device("cpu"))
    assert (tmp_path / "again.hdf5").read_bytes() == (root / piece.path).read_bytes()
