"""`pdejepa baselines`."""

from __future__ import annotations

import pytest

from pdejepa import baselines
from pdejepa.app.cli import main

Printed = pytest.CaptureFixture[str]


def test_the_list_names_all_solvers(capsys: Printed) -> None:
    assert main(["baselines"]) == 0
    trained, classical = capsys.readouterr().out.strip().split("\n\n")
    head, *lines = trained.splitlines()
    assert head.split() == ["name", "title", "begins", "with", "needs", "adapts", "stages", "makes"]
    assert [line.split()[0] for line in lines] == list(baselines.NAMES)
    title, head, *lines = classical.splitlines()
    assert title == "Classical solvers, fitted at once:"
    assert [line.split()[0] for line in lines] == list(baselines.CLASSICAL)


def test_solvers_in_detail(capsys: Printed) -> None:
    assert main(["baselines", "dpot", "mpp"]) == 0
    text = capsys.readouterr().out
    assert "DPOT-S: Hao et al." in text
    assert "begins with  1 frame, at best 10" in text
    assert "Ours differs" in text.split("MPP (AViT-B): McCabe et al.")[1]


def test_an_unknown_solver(capsys: Printed) -> None:
    assert main(["baselines", "poseidn"]) == 2
    assert "There is no solver 'poseidn', did you mean 'poseidon'" in capsys.readouterr().err
