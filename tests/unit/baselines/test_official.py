"""Published files: what is read, what is refused, and what the report says."""

from __future__ import annotations

import argparse
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pdejepa.baselines.official import load_official, manifest, manifest_hash, read_official
from pdejepa.core.errors import CheckpointError
from pdejepa.core.weights import write_weights


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(3, 3) for _ in range(20)])  # 40 tensors


def weights(value: float = 1.5) -> dict[str, Tensor]:
    return {name: torch.full_like(tensor, value) for name, tensor in net().state_dict().items()}


def saved(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize("wrapper", ["model", "model_state", "state_dict", None])
@pytest.mark.parametrize("prefix", ["module.", ""])
def test_wrappers_and_prefixes(tmp_path: Path, wrapper: str | None, prefix: str) -> None:
    content: dict[str, Any] = {prefix + name: value for name, value in weights().items()}
    content = {wrapper: content, "epoch": 3} if wrapper else content
    own = net()
    report = load_official(own, saved(tmp_path / "w.pth", content))
    assert len(report.loaded) == 40
    assert report.skipped == report.reinitialised == ()
    assert all(bool((p == 1.5).all()) for p in own.parameters())


def test_wrappers_inside_each_other(tmp_path: Path) -> None:
    for names in (("state_dict", "model"), ("model", "state_dict"), ("state_dict", "model_state", "model")):
        content: dict[str, Any] = weights()
        for name in reversed(names):
            content = {name: content, "epoch": 3}
        assert set(read_official(saved(tmp_path / "w.pth", content))) == set(weights())
    endless: dict[str, Any] = {}
    endless["model"] = endless
    with pytest.raises(CheckpointError, match="more than tensors of real numbers"):
        read_official(saved(tmp_path / "w.pth", endless))


def test_names_twice_are_refused(tmp_path: Path) -> None:
    both = {**weights(), **{f"module.{name}": value + 1 for name, value in weights().items()}}
    with pytest.raises(CheckpointError, match=r"holds 0\.weight twice, with and without the prefix 'module\.'"):
        read_official(saved(tmp_path / "w.pth", both))


def test_endings_in_capital_letters(tmp_path: Path) -> None:
    assert set(read_official(saved(tmp_path / "w.PTH", weights()))) == set(weights())
    write_weights(tmp_path / "w.SafeTensors", weights())
    assert set(read_official(tmp_path / "w.SafeTensors")) == set(weights())


def test_values_beyond_our_precision_are_refused(tmp_path: Path) -> None:
    own, tensors = net(), {name: value.double() for name, value in weights().items()}
    assert len(load_official(own, saved(tmp_path / "w.pth", tensors)).loaded) == 40
    tensors["3.bias"][1] = 1e39
    with pytest.raises(CheckpointError, match=r"3\.bias holds values too large for float32"):
        load_official(own, saved(tmp_path / "w.pth", tensors))
    assert all(bool((p == 1.5).all()) for p in own.parameters())


def test_safetensors_and_tables_of_windows(tmp_path: Path) -> None:
    tensors = {**weights(), "a.relative_coords_table": torch.ones(2), "b.relative_position_index": torch.ones(2)}
    write_weights(tmp_path / "w.safetensors", tensors)
    assert set(read_official(tmp_path / "w.safetensors")) == set(weights())


def test_options_of_trainers_are_allowed(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pth", {"args": argparse.Namespace(lr=1e-3), "model": weights()})
    assert set(read_official(path)) == set(weights())


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["EVIL"],)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".tar", ".bin"])
def test_code_in_a_file_is_never_run(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVIL", str(tmp_path / "broken_into"))
    path = saved(tmp_path / f"w{suffix}", {"model": weights(), "more": Evil()})
    with pytest.raises(CheckpointError, match=r"asks for \S*mkdir, which could run code"):
        load_official(net(), path)
    (tmp_path / f"plain{suffix}").write_bytes(pickle.dumps(Evil(), protocol=2))
    with pytest.raises(CheckpointError, match="is not loaded: it"):
        load_official(net(), tmp_path / f"plain{suffix}")
    assert not (tmp_path / "broken_into").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.ones(2)], "holds a list"),
        ({}, "holds a dict where tensors by name"),
        ({"model": {"a": 3}}, "more than tensors of real numbers"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "more than tensors of real numbers"),
        ({"a": torch.ones(2).to(torch.float8_e4m3fn)}, "more than tensors of real numbers"),
        ({"a": torch.tensor([torch.nan])}, "not finite"),
        ({"a": torch.zeros(1).expand(10**14)}, "a has more values than the file holds"),
        ({"a": torch.ones(2, device="meta")}, "a has more values than the file holds"),
        ({"a\nLoaded.": torch.tensor([torch.nan])}, r"'a\\nLoaded\.' holds values"),
        ({"a\nLoaded.": 3}, r"\('a\\nLoaded\.'\)"),
    ],
)
def test_strange_contents(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_official(saved(tmp_path / "w.pth", content))


def test_damaged_missing_and_other_files(tmp_path: Path) -> None:
    whole = saved(tmp_path / "w.pth", weights()).read_bytes()
    (tmp_path / "cut.pth").write_bytes(whole[: len(whole) // 2])
    write_weights(tmp_path / "other.pth", weights())
    pages = {"empty.pth": b"", "text.pth": b"hello, this is no model", "page.pth": b"<html>" * 9, "end.pth": whole[:-5]}
    for name, content in pages.items():
        (tmp_path / name).write_bytes(content)
    foreign = "it is not a PyTorch or safetensors file"
    told = {"cut": "it is cut off or damaged", "end": "it is cut off or damaged", "empty": "it is empty"}
    for name, why in {**told, "text": foreign, "page": foreign, "other": "it is a safetensors file"}.items():
        with pytest.raises(CheckpointError, match=rf"{name}.pth is not loaded: {why}"):
            read_official(tmp_path / f"{name}.pth")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_official(tmp_path / "none.pth")
    with pytest.raises(CheckpointError, match=r"expected \.safetensors"):
        read_official(tmp_path / "w.h5")


def test_the_warnings_of_pytorch_are_not_passed_on(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    torch.save(weights(), tmp_path / "w.pth", pickle_protocol=4)
    with pytest.raises(CheckpointError, match="save its tensors as safetensors"):
        read_official(tmp_path / "w.pth")
    assert not recwarn.list


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    tensors = {**weights(), "2.bias": torch.ones(3, dtype=torch.int64)}
    with pytest.raises(CheckpointError, match=r"2\.bias holds int64, expected float32"):
        load_official(net(), saved(tmp_path / "w.pth", tensors))


def test_names_of_a_file_cannot_forge_lines(tmp_path: Path) -> None:
    report = load_official(net(), saved(tmp_path / "w.pth", {**weights(), "x\n40 tensors\x1b[2J": torch.ones(1)}))
    assert r"1 skipped ('x\n40 tensors\x1b[2J')" in str(report)


def test_report_of_missing_and_unknown_tensors(tmp_path: Path) -> None:
    """39 of 40 tensors are 97.5 %: enough; 37 are not."""
    tensors = {**weights(), "extra": torch.ones(1)}
    del tensors["3.bias"]
    own = net()
    before = own[3].bias.detach().clone()
    report = load_official(own, saved(tmp_path / "w.pth", tensors))
    assert (report.reinitialised, report.skipped, len(report.loaded)) == (("3.bias",), ("extra",), 39)
    assert "39 tensors loaded; 1 re-initialised (3.bias); 1 skipped (extra)" in str(report)
    assert torch.equal(own[3].bias, before)
    for name in ("4.bias", "5.bias"):
        del tensors[name]
    fresh = net()
    with pytest.raises(CheckpointError, match="37 of the 40 tensors of this model, 95% are needed"):
        load_official(fresh, saved(tmp_path / "few.pth", tensors))
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), net().parameters(), strict=True))


def test_the_share_is_of_what_should_be_there(tmp_path: Path) -> None:
    tensors = {name: value for name, value in weights().items() if not name.startswith("1")}  # 1, 10 .. 19
    path = saved(tmp_path / "w.pth", tensors)
    with pytest.raises(CheckpointError, match="another model"):
        load_official(net(), path)
    assert len(load_official(net(), path, idle=("1",)).loaded) == 18


def test_fresh_and_differing_shapes(tmp_path: Path) -> None:
    tensors = {**weights(), "0.weight": torch.ones(3, 5), "1.weight": torch.ones(3, 6)}
    path = saved(tmp_path / "w.pth", tensors)
    with pytest.raises(CheckpointError, match=r"0.weight is \(3, 5\), expected \(3, 3\)"):
        load_official(net(), path, may_differ=("1.",))
    report = load_official(net(), path, may_differ=("0.weight", "1.weight"), fresh=("2.",))
    assert report.reinitialised == ("0.weight", "1.weight", "2.weight", "2.bias")
    report = load_official(net(), path, convert=lambda name, theirs, ours: theirs[:, :3])
    assert report.reinitialised == ()


def test_manifest() -> None:
    tensors = {"b": torch.ones(2), "a": torch.ones(1, 3), "c": torch.ones(())}
    assert manifest(tensors) == ["a (1, 3)", "b (2,)", "c ()"]
    assert manifest_hash(tensors) == manifest_hash(dict(reversed(tensors.items())))
    assert manifest_hash(tensors) != manifest_hash({**tensors, "b": torch.ones(3)})
