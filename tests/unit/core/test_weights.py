"""Tensors in files: what is written comes back, and anything else is refused with a reason."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor, nn

from pdejepa.core.errors import CheckpointError
from pdejepa.core.weights import gather, restore
from pdejepa.training.checkpoint import read_weights, write_weights

TENSORS = {
    "a.weight": torch.arange(12.0).reshape(3, 4),
    "a.bias": torch.arange(4, dtype=torch.float64),
    "n": torch.tensor(7),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "empty": torch.zeros((0, 5)),
    "flags": torch.tensor([True, False]),
}
VALID = save(TENSORS)


def stored(header: Any, values: bytes = b"", length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + values


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


# ---- reading tensors ---------------------------------------------------------------------------------------------
def test_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.safetensors", TENSORS)
    found = read_weights(tmp_path / "w.safetensors")
    assert found.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)
    assert (tmp_path / "w.safetensors").read_bytes() == VALID
    other = tmp_path / "other"
    other.touch()
    assert (tmp_path / "w.safetensors").stat().st_mode == other.stat().st_mode


def test_views_and_transposed_tensors_are_written(tmp_path: Path) -> None:
    big = torch.arange(12.0).reshape(3, 4)
    write_weights(tmp_path / "w", {"t": big.T, "part": big[1:2].clone().requires_grad_()})
    found = read_weights(tmp_path / "w")
    assert torch.equal(found["t"], big.T)
    assert torch.equal(found["part"], big[1:2])


@pytest.mark.parametrize("n_names", range(1, 60))
def test_no_length_of_the_header_is_taken_for_a_pickle(n_names: int, tmp_path: Path) -> None:
    """A header of 128 bytes makes the file begin with 0x80, as a pickle does."""
    (tmp_path / "w").write_bytes(save({f"tensor_{n}": torch.zeros(1) for n in range(n_names)}))
    assert len(read_weights(tmp_path / "w")) == n_names


def torch_file(**options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save({"weight": torch.zeros(3)}, buffer, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        *(pickle.dumps({"weight": [0.0] * 3}, protocol) for protocol in range(2, 6)),
        torch_file(),
        torch_file(_use_new_zipfile_serialization=False),
    ],
)
def test_pickles_are_refused_by_their_content(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_weights(tmp_path / "w.safetensors")
    assert "This is a Python pickle; it can run code and is not loaded." in str(caught.value)
    assert "w.safetensors" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "cut off: it has 0 bytes"),
        (b"\x10\0\0", "cut off: it has 3 bytes"),
        (b"just some text, quite long", "This is not a safetensors file"),
        (b"\x89HDF\r\n\x1a\n and so on", "This is an HDF5 file"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0", "This is a gzip file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "pointer of Git LFS"),
        (stored({"a": entry()}, b"\0" * 8, length=2**40), "claims 1,099,511,627,776 bytes"),
        (stored({"a": entry()}, b"\0" * 8, length=500), "its header alone needs 508"),
        (stored({"a": entry()}, b"\0" * 7), "cut off: 8 bytes of values were announced, 7 are there"),
        (stored({"a": entry()}, b"\0" * 9), "too long: 8 bytes of values were announced, 9 are there"),
        (stored({"a": entry(), "b": entry(offsets=(4, 12))}, b"\0" * 12), "'b' overlaps the tensor before it"),
        (stored({"a": entry(), "b": entry(offsets=(12, 20))}, b"\0" * 20), "'b' leaves a gap"),
        (stored({"a": entry("F4")}, b"\0" * 8), "unknown type 'F4'"),
        (stored({"a": entry(["F32"])}, b"\0" * 8), "unknown type"),
        (stored({"a": entry(shape=(3,))}, b"\0" * 8), "offsets that do not fit its shape"),
        (stored({"a": entry(shape=(-2,), offsets=(0, -8))}), "not whole numbers"),
        (stored({"a": entry(shape=(True, 2))}, b"\0" * 8), "not whole numbers"),
        (stored({"a": entry(shape=(2.0,))}, b"\0" * 8), "not whole numbers"),
        (stored({"a": entry(shape="2")}, b"\0" * 8), "not whole numbers"),
        (stored({"a": entry(shape=(0, 10**30), offsets=(0, 0))}), "not whole numbers"),
        (stored({"a": entry(offsets=(0,))}, b"\0" * 8), "not whole numbers"),
        (stored({"a": {**entry(), "more": 1}}, b"\0" * 8), "needs dtype, shape and data_offsets"),
        (stored({"a": 3}), "needs dtype, shape and data_offsets"),
        (stored({"__metadata__": {"a": 1}}), "metadata is not a table of texts"),
        (stored(b'{"a": ' + b"[" * 100_000), "The header is damaged"),
        (stored(b'{"a": ' + b"1" * 10_000 + b"}"), "The header is damaged"),
        (stored(b'{"a": 1, "a": 2}'), "a name appears twice"),
        (stored(b'{"\xff": 1}'), "The header is damaged"),
        (stored({"flags": entry("BOOL", (2,), (0, 2))}, b"\1\2"), "neither true nor false"),
        (save({"w.0": torch.ones(2), "w.1": torch.tensor([1, float("nan")])}), "'w.1' holds values that are not fin"),
        (save({"h": torch.tensor([float("inf")], dtype=torch.bfloat16)}), "'h' holds values that are not finite"),
    ],
)
def test_files_that_are_refused(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_weights(tmp_path / "w.safetensors")
    assert told in str(caught.value)
    assert "w.safetensors" in str(caught.value)


def test_things_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, told in (("pipe", "not a regular file"), (".", "not a regular file"), ("none", "No such file")):
        with pytest.raises(CheckpointError, match=told):
            read_weights(tmp_path / name)


def attempt(path: Path, content: bytes) -> None:
    """Tensors, all finite, or a CheckpointError that names the file: nothing else."""
    path.write_bytes(content)
    try:
        found = read_weights(path)
    except CheckpointError as error:
        assert path.name in str(error)
    else:
        assert all(bool(torch.isfinite(value).all()) for value in found.values())


FUZZ = limits(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    attempt(tmp_path / "fuzzed", content)
    attempt(tmp_path / "fuzzed", stored(b"{" + content))


@FUZZ
@given(
    st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=6),
    st.integers(0, len(VALID)),
    st.binary(max_size=9),
)
def test_a_good_file_with_changed_bytes_cut_and_lengthened(
    tmp_path: Path, changes: list[tuple[int, int]], length: int, tail: bytes
) -> None:
    content = bytearray(VALID)
    for position, value in changes:
        content[position] = value
    attempt(tmp_path / "fuzzed", bytes(content))
    attempt(tmp_path / "fuzzed", bytes(content[:length]) + tail)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "I64", "BOOL", "F8_E4M3", "C64", ""]) | JSON,
        "shape": st.lists(st.integers(-1, 2**65), max_size=4) | JSON,
        "data_offsets": st.lists(st.integers(-1, 40), min_size=2, max_size=2) | JSON,
    }
)


@FUZZ
@given(st.dictionaries(st.text(max_size=5) | st.just("__metadata__"), ENTRY | JSON, max_size=4), st.binary(max_size=40))
def test_any_header(tmp_path: Path, header: dict[str, Any], values: bytes) -> None:
    attempt(tmp_path / "fuzzed", stored(header, values))


# ---- models ------------------------------------------------------------------------------------------------------
def test_restoring_is_strict_and_changes_nothing_if_refused() -> None:
    net = nn.Linear(3, 2)
    before = {name: value.clone() for name, value in gather({"net": net}).items()}
    wrong: dict[str, Tensor] = {f"old.{n}": torch.zeros(1) for n in range(5)}
    wrong["net.bias"] = torch.zeros(2, dtype=torch.float16)
    with pytest.raises(CheckpointError) as caught:
        restore({"net": net}, wrong, "decode/final")
    assert str(caught.value) == (
        "decode/final does not fit this model: missing: net.weight; unexpected: old.0, old.1, old.2 and 2 more; "
        "dtype: net.bias is float16, expected float32."
    )
    assert all(torch.equal(value, before[name]) for name, value in gather({"net": net}).items())
    restore({"net": net}, {name: value + 1 for name, value in before.items()}, "x")
    assert torch.equal(net.bias.detach(), before["net.bias"] + 1)
