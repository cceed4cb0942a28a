"""Records of ablations from anywhere: what cannot be used is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdejepa.core.errors import DataError
from pdejepa.studies.ablate.ablation_record import (
    earlier_record,
    read_record,
    with_failure,
    with_run,
    write_record,
)
from tests.unit.studies.ablate.ablation_records_made import full_record, made


# ---- records -----------------------------------------------------------------------------------------------------
def test_names() -> None:
    assert made().name == "vorticity-fast"
    assert made(seed=2, recipe="my/own").name == "vorticity-my_own-s2"


def test_records_are_found(tmp_path: Path) -> None:
    assert write_record(made(), tmp_path) == tmp_path / "ablate.json"
    assert read_record(tmp_path) == read_record(tmp_path / "ablate.json") == earlier_record(tmp_path) == made()


def test_a_run_that_diverged_is_noted_until_it_ends_well() -> None:
    failed = with_failure(made(), "geo", "step 3: the loss is not finite. Lower the rate.")
    assert failed.failed == {"geo": "step 3: the loss is not finite"}
    assert set(made().runs) - set(failed.runs) == {"geo"}
    again = with_run(failed, "geo", made().runs["geo"])
    assert again.failed == {}
    assert set(again.runs) == set(made().runs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "damaged: not JSON"),
        ("[]", "is not a record of an ablation"),
        ('{"format": "pdejepa-model"}', "is not a record of an ablation"),
        (json.dumps(full_record(format_version=9)), "has format 9"),
        (json.dumps({key: value for key, value in full_record().items() if key != "runs"}), "runs: required"),
        (json.dumps(full_record(runs=[])), "runs: must be a group of keys"),
        (json.dumps(full_record(sede=1)), "sede: unknown key, did you mean 'seed'?"),
        (json.dumps(full_record(device="\x1b[31m")), "device has letters that do not print"),
        (json.dumps(full_record(runs={"physics": {}})), "runs: key 'physics' lacks the key system"),
        (json.dumps(full_record(seed=float("nan"))), "seed: must be an integer"),
    ],
)
def test_other_files_are_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "ablate.json").write_text(text)
    with pytest.raises(DataError, match=words):
        read_record(tmp_path)
    assert earlier_record(tmp_path) is None


def test_no_record(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_record(tmp_path)
    assert earlier_record(tmp_path) is None
