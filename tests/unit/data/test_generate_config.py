"""Configuration, plan and command line of `pdejepa generate`, and the arithmetic of the statistics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pdejepa import systems
from pdejepa.app.cli import main
from pdejepa.core.errors import ConfigError
from pdejepa.data.generate.layout import MAX_FILE_BYTES, GenerateConfig, Plan, parse_slice
from pdejepa.data.generate.stats import Moments, clipped, merge_moments, moments_from_plain, moments_to_plain
from pdejepa.data.well.reader import Dataset


def plan(system: str = "combined", **changes: object) -> Plan:
    return Plan.of(GenerateConfig(system=system, out="d", **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", systems.NAMES)
@pytest.mark.parametrize("size", systems.SIZES)
@pytest.mark.parametrize("raw_frames", [False, True])
def test_every_row_has_one_place(name: str, size: str, raw_frames: bool) -> None:
    made = plan(name, size=size, raw_frames=raw_frames)
    for split in made.splits:
        pieces = [piece for piece in made.pieces if piece.split == split.name]
        rows = [row for piece in pieces for row in range(piece.start, piece.stop)]
        assert rows == list(range(split.size(size)))
        assert all(piece.start % made.system.chunk[0] == 0 for piece in pieces)
        assert all(piece.n * made.row_bytes <= MAX_FILE_BYTES for piece in pieces)
    assert len({piece.path for piece in made.pieces}) == len(made.pieces)
    assert [len(made.slice(i, 4)) for i in range(4)] == [len(made.pieces[i::4]) for i in range(4)]


def test_large_rows_make_small_files() -> None:
    made = plan("vorticity", size="paper", rows_per_file=10**6)
    assert made.pieces[0].n * made.row_bytes <= MAX_FILE_BYTES


def test_equal_plans_are_stored_equally() -> None:
    named = plan(splits=("train", "valid", "test", "ood"), switches={"flux": "alpha u^2/2"}, counts={"train": 20})
    assert plan().stored_text() == named.stored_text()
    assert plan(device="cpu", shard="1/2", wait=False).stored_sha256() == plan().stored_sha256()
    assert plan(seed=1).stored_sha256() != plan().stored_sha256()
    assert plan().shard_config() == plan(splits=("test",)).shard_config()


def test_switches_win_over_the_size() -> None:
    assert plan("vorticity").system.solver_grid == 128  # type: ignore[attr-defined]
    assert plan("vorticity", switches={"solver_grid": 256}).system.solver_grid == 256  # type: ignore[attr-defined]
    assert isinstance(plan("combined", switches={"length": 8}).stored()["switches"]["length"], float)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"system": "combine"}, "did you mean 'combined'"),
        ({"splits": ("tets",)}, "has no split 'tets', did you mean 'test'"),
        ({"counts": {"bridge": 3}}, "has no split 'bridge'"),
        ({"counts": {"test": 0}}, "counts.test must be from 1"),
        ({"shard": "3/3"}, "shard must be i/n"),
        ({"shard": "1-3"}, "shard must be i/n"),
        ({"seed": -1}, "seed must be from 0"),
        ({"rows_per_file": -1}, "rows_per_file must be"),
        ({"switches": {"fluxx": "a"}}, "no switch 'fluxx', did you mean 'flux'"),
        ({"switches": {"flux": "u"}}, "flux must be one of"),
        ({"switches": {"n_points": "many"}}, "n_points must be of type int"),
        ({"out": " "}, "out must name a folder"),
    ],
)
def test_wrong_configurations_are_refused(changes: dict[str, object], told: str) -> None:
    values: dict[str, object] = {"system": "combined", "out": "d", **changes}
    with pytest.raises(ConfigError, match=told):
        GenerateConfig(**values)  # type: ignore[arg-type]


def test_slices_are_counted_from_zero() -> None:
    assert parse_slice("0/1") == (0, 1)
    assert parse_slice(" 7/8 ") == (7, 8)


def test_moments_merge_to_those_of_the_whole() -> None:
    values = np.random.default_rng(0).normal(1e3, 1e-2, size=(40, 50))
    parts = [{"value": {"u": Moments.of(row)}, "delta": {}} for row in values]
    total = merge_moments(parts)["value"]["u"]
    assert total.n == 2000
    assert total.mean == pytest.approx(values.mean(), rel=1e-14)
    assert total.std == pytest.approx(values.std(), rel=1e-10)
    assert total.rms == pytest.approx(np.sqrt((values**2).mean()), rel=1e-14)
    again = moments_from_plain(json.loads(json.dumps(moments_to_plain(merge_moments(parts)))))
    assert again == merge_moments(parts)


def test_small_deviations_are_named() -> None:
    stats = {kind: {"u": 1e-5, "v": 1.0} for kind in ("mean", "std", "rms", "mean_delta", "std_delta", "rms_delta")}
    assert clipped(stats) == ["std of u", "rms of u", "std_delta of u", "rms_delta of u"]


# ---- command line --------------------------------------------------------------------------------------------------
def test_the_command_makes_a_data_set_and_says_what_is_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "d"
    words = ["generate", "wave-2d", "--out", str(out), "--splits", "train, test", "--seed", "3", "--device", "cpu"]
    assert main([*words, "compression=gzip", "counts.train=3", "counts.test=2", "rows_per_file=2"]) == 0
    told = capsys.readouterr().out
    assert f"5 trajectories in {out}" in told
    assert f"pdejepa audit {out}" in told
    with Dataset.open(out) as data:
        assert data.splits == ("train", "test")
        made = data.build_system().generate("train", n=2, seed=3)
        np.testing.assert_array_equal(data.fields("train", range(2)), made.fields.numpy())
        assert data.shard(data.shards("train")[0])._file["t0_fields/u"].compression == "gzip"


def test_raw_frames(tmp_path: Path) -> None:
    assert main(["generate", "advection", "--out", str(tmp_path / "d"), "--splits", "test", "--raw-frames"]) == 0
    with Dataset.open(tmp_path / "d") as data:
        system = data.build_system()
        assert data.fields("test").shape[1] == len(system.raw_times) > len(system.times)
    assert not (tmp_path / "d" / "stats.yaml").exists()
    assert "no `stats.yaml`" in (tmp_path / "d" / "README.md").read_text()


def test_the_stored_configuration_reproduces_the_data_set(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    assert main(["generate", "heat", "--out", str(first), "--splits", "test", "--seed", "5"]) == 0
    assert main(["generate", "heat", "--out", str(second), "--config", str(first / "config.json")]) == 0
    assert (first / "manifest.json").read_bytes() == (second / "manifest.json").read_bytes()


def test_print_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "combined", "--out", str(tmp_path / "d"), "switches.flux=alpha u^2", "--print-config"]
    assert main(words) == 0
    assert "flux: alpha u^2" in capsys.readouterr().out
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["combined"], "out: required, but not given"),
        (["combined", "--out", "d", "--size", "huge"], "size: must be one of tiny, small, laptop, paper"),
        (["combined", "--out", "d", "rows=3"], "unknown key"),
        (["combine", "--out", "d"], "did you mean 'combined'"),
        (["combined", "--out", "d", "--device", "gpu"], "device"),
    ],
)
def test_wrong_words_end_with_code_two(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["generate", *words]) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_slice_tells_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "advection", "--out", str(tmp_path / "d"), "--shard"]
    assert main([*words, "1/2"]) == 0
    assert "2 shards of other slices are not finished yet" in capsys.readouterr().out
    assert main([*words, "0/2"]) == 0
    assert "Next: pdejepa audit" in capsys.readouterr().out
