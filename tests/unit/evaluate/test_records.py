"""Records are read back as they were written; what is none is named and left out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pdejepa.core.errors import DataError
from pdejepa.evaluate.records import read_records, shipped_records
from pdejepa.evaluate.results import make_result, write_result
from tests.unit.evaluate import made
from tests.unit.forecast import tiny

NUMBERS = {"rel_l2": 0.2, "rel_l2_joint": 0.1, "n": 2, "n_unstable": 1, "source": "generated"}
ERRORS = {"test": {**NUMBERS, "per_frame": [0.1, None]}}


def test_what_evaluate_writes_is_read(tmp_path: Path) -> None:
    write_result(make_result(tiny.forecaster("heat"), ERRORS), tmp_path / "heat-tiny-s3.json")
    found = read_records(tmp_path)
    assert found.skipped == ()
    (record,) = found.records
    assert (record.system, record.recipe, record.variant, record.polish, record.seed) == (
        "heat",
        "tiny",
        "physics",
        False,
        3,
    )
    assert (record.observed_frames, record.seconds, record.device, record.weights_bytes) == (1, 1.5, "cpu", None)
    test = record.errors["test"]
    assert (test.rel_l2, test.rel_l2_joint, test.per_frame, test.n, test.n_unstable) == (0.2, 0.1, (0.1, None), 2, 1)
    assert record.source == ""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "no record"),
        ('{"rows": []}', "no record"),
        (json.dumps({"errors": {}}), "no system"),
        (json.dumps({**made.plain(), "system": "tokamak"}), "unknown system 'tokamak'"),
        (json.dumps({**made.plain(), "system": ["heat"]}), "unknown system"),
        (json.dumps({**made.plain(), "variant": "magic"}), "unknown variant"),
        (json.dumps({**made.plain(), "seed": "0"}), "seed is no whole number"),
        (json.dumps({**made.plain(), "seed": True}), "seed is no whole number"),
        (json.dumps({**made.plain(), "observed_frames": 0}), "observed_frames is no whole number"),
        (json.dumps({**made.plain(), "errors": {"test": 3}}), "no errors under 'test'"),
        (json.dumps(made.plain(errors={"test": float("nan")})), "'nan' is neither"),
        (json.dumps(made.plain(errors={"test": -1.0})), "is neither"),
        (json.dumps({**made.plain(), "seconds": {"total": "long"}}), "'long' is neither"),
    ],
)
def test_what_is_no_record_is_named(tmp_path: Path, content: str, why: str) -> None:
    made.write(tmp_path, made.plain())
    (tmp_path / "bad.json").write_text(content)
    found = read_records(tmp_path)
    assert [record.name for record in found.records] == ["combined-fast-s0.json"]
    assert len(found.skipped) == 1
    assert found.skipped[0][0] == "bad.json"
    assert why in found.skipped[0][1]


def test_other_things_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")  # reading it would wait for ever
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "notes.txt").write_text("no JSON")
    (tmp_path / ".hidden.json").write_text("no JSON")
    found = read_records(tmp_path)
    assert found.records == ()
    names = ["binary.json", "folder.json", "gone.json", "pipe.json"]
    assert [name for name, _ in found.skipped] == names


def test_a_copy_does_not_count_twice(tmp_path: Path) -> None:
    content = made.plain(errors={"test": 0.01})
    made.write(tmp_path, content, "a.json")
    made.write(tmp_path, content, "b.json")
    found = read_records(tmp_path)
    assert [record.name for record in found.records] == ["a.json"]
    assert found.skipped == (("b.json", "the same forecasts as a.json"),)


def test_two_records_of_one_model_become_one(tmp_path: Path) -> None:
    for name, errors in (("a.json", {"test": 0.01}), ("b.json", {"test": 0.02, "ood": 0.03})):
        made.write(tmp_path, {**made.plain(errors=errors), "weights_sha256": "9c1e"}, name)
    found = read_records(tmp_path)
    assert found.skipped == ()
    (record,) = found.records
    assert {split: errors.rel_l2 for split, errors in record.errors.items()} == {"test": 0.01, "ood": 0.03}


def test_other_data_are_another_kind(tmp_path: Path) -> None:
    content: dict[str, Any] = made.plain()
    made.write(tmp_path, content, "a.json")
    content["errors"]["test"]["source"] = "/somewhere/else/mine"
    made.write(tmp_path, content, "b.json")
    assert [record.source for record in read_records(tmp_path).records] == ["", "mine"]


def test_texts_of_a_file_are_printable(tmp_path: Path) -> None:
    made.write(tmp_path, made.plain(device="GPU\x1b[31m\n" + 100 * "x"))
    (record,) = read_records(tmp_path).records
    assert record.device.startswith("GPU[31mxxx")
    assert len(record.device) == 60


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_folders_that_are_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="give the folder that holds the records"):
        read_records(tmp_path / name)


def test_shipped_models_tell_their_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path / package)
    root = tmp_path / "pdejepa" / "checkpoints"
    tiny.saved("wave_b", root / "wave", {"errors": {"test": NUMBERS}, "polish": True}, history=2)
    (root / "broken").mkdir()
    (root / "broken" / "config.json").write_text("{")
    found = shipped_records()
    (record,) = found.records
    assert (record.name, record.system, record.observed_frames, record.polish) == ("wave", "wave_b", 2, True)
    assert record.errors["test"].rel_l2 == 0.2
    assert record.errors["test"].per_frame == ()
    assert record.weights_bytes == (root / "wave" / "weights.safetensors").stat().st_size
    assert len(found.skipped) == 1
    assert found.skipped[0][0] == "broken"
