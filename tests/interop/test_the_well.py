"""The official loader reads our files: every system, every split, values and parameters bit for bit.

Install with `pip install "pdejepa[interop]"`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pdejepa import systems
from pdejepa.data.generate.stats import CLIP
from pdejepa.data.well.reader import Dataset
from pdejepa.data.well.validate import check_folder

pytest.importorskip("the_well", reason="the_well is not installed (extra: interop)")
from the_well.data import WellDataset
from the_well.data.normalization import RMSNormalization, ZScoreNormalization

Make = Callable[[str], Path]
CODES = {False: 0.0, True: 2.0}  # WALL, PERIODIC

pytestmark = pytest.mark.interop
FLOWS = ("vorticity", "heterns")  # even their smallest data sets take half a minute to make
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in FLOWS else name for name in systems.NAMES]
every_system = pytest.mark.parametrize("name", NAMES)


def open_well(root: Path, split: str, **options: Any) -> WellDataset:
    return WellDataset(path=str(root), well_split_name=split, **{"n_steps_input": 2, "n_steps_output": 3, **options})


@every_system
def test_our_validator_agrees(name: str, tiny_datasets: Make) -> None:
    assert [str(problem) for problem in check_folder(tiny_datasets(name))] == []


@every_system
def test_every_split_opens_and_returns_our_values(name: str, tiny_datasets: Make) -> None:
    root = tiny_datasets(name)
    with Dataset.open(root) as data:
        system = data.build_system()
        assert set(data.splits) == {split.name for split in system.splits}
        for split in data.splits:
            well = open_well(root, split)
            n_frames, n = len(data.times), data.n(split)
            assert len(well) == n * (n_frames - 4)
            item, ours = well[len(well) - 1], data.read(split, n - 1)
            expected = np.moveaxis(ours.fields[-3:], 1, -1)  # (To,*grid,C)
            np.testing.assert_array_equal(item["output_fields"].numpy(), expected)
            xi = np.array([*ours.xi.values(), *system.constants.values()], dtype=np.float32)
            np.testing.assert_array_equal(item["constant_scalars"].numpy(), xi)
            codes = [[CODES[periodic]] * 2 for periodic in system.problem.periodic_axes]
            np.testing.assert_array_equal(item["boundary_conditions"].numpy(), codes)
            mesh = np.stack(np.meshgrid(*ours.axes.values(), indexing="ij"), -1).astype(np.float32)
            np.testing.assert_array_equal(item["space_grid"].numpy(), mesh)
            if ours.constant_fields:
                constant = np.stack(list(ours.constant_fields.values()), -1)
                np.testing.assert_array_equal(item["constant_fields"].numpy(), constant)


@every_system
def test_whole_trajectories_keep_their_times(name: str, tiny_datasets: Make) -> None:
    root = tiny_datasets(name)
    well = open_well(
        root,
        "test",
        n_steps_input=1,
        n_steps_output=1,
        full_trajectory_mode=True,
        max_rollout_steps=10**6,
        normalize_time_grid=False,
    )
    with Dataset.open(root) as data:
        assert len(well) == data.n("test")
        for index in range(len(well)):
            item = well[index]
            times = np.concatenate([item["input_time_grid"].numpy(), item["output_time_grid"].numpy()])
            np.testing.assert_array_equal(times, data.times.astype(np.float32))
            fields = np.concatenate([item["input_fields"].numpy(), item["output_fields"].numpy()])
            np.testing.assert_array_equal(np.moveaxis(fields, -1, 1), data.read("test", index).fields)


@every_system
@pytest.mark.parametrize("normaliser", [ZScoreNormalization, RMSNormalization])
def test_both_normalisers(name: str, normaliser: type, tiny_datasets: Make) -> None:
    root = tiny_datasets(name)
    with Dataset.open(root) as data:
        n_frames, fields = len(data.times), data.field_names
    options = {"n_steps_input": n_frames - 1, "n_steps_output": 1, "use_normalization": True}
    well = open_well(root, "train", normalization_type=normaliser, **options)
    items = [well[index] for index in range(len(well))]
    u = np.stack([np.concatenate([item["input_fields"], item["output_fields"]]) for item in items])
    assert np.isfinite(u).all()
    for channel in range(len(fields)):
        values = u[..., channel].astype(np.float64)
        if normaliser is ZScoreNormalization:
            assert abs(values.mean()) < 1e-4
            assert values.std() == pytest.approx(1, abs=1e-4)
        else:
            assert np.sqrt((values**2).mean()) == pytest.approx(1, abs=1e-4)


@every_system
def test_a_loader_with_workers_collates(name: str, tiny_datasets: Make) -> None:
    from torch.utils.data import DataLoader

    well = open_well(tiny_datasets(name), "valid")
    loader = DataLoader(well, batch_size=2, num_workers=2)
    for batch in itertools.islice(loader, 2):
        assert batch["input_fields"].shape[:2] == (2, 2)
        assert batch["output_fields"].shape[:2] == (2, 3)


@every_system
def test_the_export_to_xarray_keeps_the_parameters_of_each_sample(name: str, tiny_datasets: Make) -> None:
    pytest.importorskip("xarray", reason="xarray is not installed (extra: interop)")
    root = tiny_datasets(name)
    exported = open_well(root, "test").to_xarray(backend="numpy")
    with Dataset.open(root) as data:
        for j, parameter in enumerate(data.parameter_names):
            np.testing.assert_array_equal(
                np.asarray(exported[parameter]).reshape(-1), data.xi("test")[:, j].astype(np.float32)
            )
        for channel, field in enumerate(data.field_names):
            np.testing.assert_array_equal(np.asarray(exported[field]), data.fields("test")[:, :, channel])


def test_the_card_warns_exactly_where_the_official_clip_applies(tiny_datasets: Make) -> None:
    import yaml

    root = tiny_datasets("combined")
    stats = yaml.safe_load((root / "stats.yaml").read_text())
    is_small = min(v for key in ("std", "std_delta") for v in stats[key].values()) < CLIP
    assert ("never divide by less" in (root / "README.md").read_text()) == is_small


def test_vectors_and_tensors_become_the_same_channels(tmp_path: Path) -> None:
    """A folder of somebody else with t0, t1 and t2 fields: our reader and the loader name and order them alike."""
    write_foreign(tmp_path)
    well = open_well(tmp_path, "train", n_steps_input=1, n_steps_output=3)
    item = well[1]
    names = [name for rank in range(3) for name in well.metadata.field_names[rank]]
    with Dataset.open(tmp_path) as data:
        ours = data.read("train", 1)
        assert list(ours.field_names) == names
        fields = np.concatenate([item["input_fields"], item["output_fields"]])
        np.testing.assert_array_equal(np.moveaxis(fields, -1, 1), ours.fields)
        assert ours.xi == {"viscosity": 0.25, "gravity": 9.5}
        assert set(ours.constant_fields) == {"mask"}
        assert data.config is None


def write_foreign(root: Path) -> None:
    rng = np.random.default_rng(0)
    folder = root / "data" / "train"
    folder.mkdir(parents=True)
    fields: dict[str, dict[str, tuple[int, ...]]] = {
        "t0_fields": {"pressure": (2, 4, 6, 5), "mask": (2, 6, 5)},
        "t1_fields": {"velocity": (2, 4, 6, 5, 2)},
        "t2_fields": {"stress": (2, 4, 6, 5, 2, 2)},
    }
    with h5py.File(folder / "a.hdf5", "w") as file:
        file.attrs.update(
            dataset_name="theirs", grid_type="cartesian", n_spatial_dims=2, n_trajectories=2, simulation_parameters=[]
        )
        dimensions = file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = ["x", "y"]
        for name, n in (("time", 4), ("x", 6), ("y", 5)):
            dimensions[name] = np.arange(n, dtype=np.float32)
            dimensions[name].attrs.update(sample_varying=False, time_varying=name == "time")
        file.create_group("boundary_conditions")
        scalars = file.create_group("scalars")
        scalars.attrs["field_names"] = ["viscosity", "gravity"]
        scalars["viscosity"] = np.array([0.5, 0.25], np.float32)
        scalars["gravity"] = np.float32(9.5)
        for name in ("viscosity", "gravity"):
            scalars[name].attrs.update(sample_varying=name == "viscosity", time_varying=False)
        for group, members in fields.items():
            made = file.create_group(group)
            made.attrs["field_names"] = list(members)
            for name, shape in members.items():
                made[name] = rng.normal(size=shape).astype(np.float32)
                made[name].attrs.update(sample_varying=True, time_varying=name != "mask", dim_varying=[True, True])
