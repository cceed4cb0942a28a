"""Weights that others have published: read safely, compared by name and shape, and reported tensor by tensor.

    report = load_official(net, path)          the user's file; nothing is ever downloaded
    print(report)                              loaded, re-initialised and skipped tensors

A file is a safetensors file, or a pickle of PyTorch (.pth, .pt, .tar, .bin) that is opened by its safe reader only: a
file that asks for more than tensors, plain containers and `argparse.Namespace` is refused, never opened otherwise.

    1  unwrap        {"model": ...}, {"model_state": ...}, {"state_dict": ...}, one inside another, or the tensors
    2  names         a leading `module.` goes; tables that follow from the window size are ignored
    3  every tensor  of ours: loaded, or re-initialised (it keeps its random start) if it is listed as such or missing
    4  refuse        a shape that may not differ, and fewer than 95 % of the tensors that should be loaded

A manifest is the list of all names and shapes; its hash says in one word whether an architecture is the official one.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pdejepa.core.errors import CheckpointError
from pdejepa.core.files import sha256_file
from pdejepa.core.weights import first_not_finite, read_weights

PICKLES = (".pth", ".pt", ".tar", ".bin")
PREFIX = "module."  # of networks that were trained on several GPUs
WRAPPERS = ("model", "model_state", "state_dict")
BEGINNINGS = (b"PK\x03\x04", b"\x80")  # of what PyTorch writes: archives, and pickles before version 1.6
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
IGNORED = ("relative_coords_table", "relative_position_index")  # ends of names: they follow from the window size
LEAST_SHARE = 0.95
Convert = Callable[[str, Tensor, Tensor], Tensor | None]  # (name, theirs, ours) -> theirs in our shape, or None


@dataclass(frozen=True)
class Report:
    """Names of our tensors that were loaded or kept their random start, and of theirs that found no place."""

    loaded: tuple[str, ...]
    reinitialised: tuple[str, ...]
    skipped: tuple[str, ...]
    source: str = ""  # hash of the file

    def __str__(self) -> str:
        parts = [f"{len(self.loaded)} tensors loaded"]
        for word, names in (("re-initialised", self.reinitialised), ("skipped", self.skipped)):
            listed = ", ".join(map(_shown, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            parts.append(f"{len(names)} {word}" + (f" ({listed})" if names else ""))
        return "; ".join(parts)


def load_official(
    module: nn.Module,
    path: str | os.PathLike[str],
    *,
    fresh: Collection[str] = (),
    may_differ: Collection[str] = (),
    idle: Collection[str] = (),
    convert: Convert | None = None,
) -> Report:
    """Copy the tensors of a published file into `module`, in place; CheckpointError if it is another model's.

    fresh       prefixes of names that keep their random start, whatever the file holds
    may_differ  prefixes of names that keep it where the shapes differ
    idle        prefixes of names without a part in anything; they do not count among the 95 %
    convert     gives a tensor of another shape ours (interpolated positions, more fields), or None if it cannot
    Nothing is changed unless everything is in order.
    """
    theirs, ours = read_official(path), module.state_dict()
    wanted = {name: own for name, own in ours.items() if name in theirs and not name.startswith(tuple(fresh))}
    fitted = {name: _fitted(name, theirs[name], own, convert) for name, own in wanted.items()}
    chosen = {name: value for name, value in fitted.items() if value is not None}
    _check_kinds(path, theirs, wanted, [n for n in wanted if n not in chosen and not n.startswith(tuple(may_differ))])
    bad = first_not_finite(chosen)
    if bad:
        raise CheckpointError(f"{path}: {bad} holds values too large for {_type(ours[bad])}. Use another file.")
    _check_share(path, chosen, [n for n in ours if not n.startswith((*fresh, *may_differ, *idle))])
    with torch.no_grad():
        for name, value in chosen.items():
            ours[name].copy_(value)
    kept, skipped = (tuple(n for n in a if n not in b) for a, b in ((ours, chosen), (theirs, ours)))
    return Report(tuple(chosen), kept, skipped, sha256_file(Path(path)))


def _fitted(name: str, theirs: Tensor, own: Tensor, convert: Convert | None) -> Tensor | None:
    """Theirs in our shape and type, or None if it cannot be brought into it."""
    value = theirs if theirs.shape == own.shape else convert(name, theirs, own) if convert else None
    return value.to(own.dtype) if value is not None and value.shape == own.shape else None


def _check_kinds(
    path: str | os.PathLike[str], theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor], misfits: list[str]
) -> None:
    """Refuse whole numbers where weights should be, and tensors that have another shape and must not."""
    wrong = [
        f"{name} holds {_type(theirs[name])}, expected {_type(own)}"
        for name, own in ours.items()
        if own.is_floating_point() and not theirs[name].is_floating_point()
    ]
    wrong += [f"{name} is {tuple(theirs[name].shape)}, expected {tuple(ours[name].shape)}" for name in misfits]
    if wrong:
        told = "; ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")
        raise CheckpointError(f"{path} is of another size or type: {told}. Use the file of this model.")


def _check_share(path: str | os.PathLike[str], found: Collection[str], backbone: list[str]) -> None:
    missing = [name for name in backbone if name not in found]
    if len(missing) > (1 - LEAST_SHARE) * len(backbone):
        n, total = len(backbone) - len(missing), len(backbone)
        raise CheckpointError(
            f"{path} holds {n} of the {total} tensors of this model, {LEAST_SHARE:.0%} are needed; missing: "
            f"{', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}. It is the file of another model."
        )


# ---- files -------------------------------------------------------------------------------------------------------
def read_official(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a published file by name, on the CPU and finite, without wrappers, prefixes and tables."""
    path = Path(path)
    if path.suffix.lower() == ".safetensors":
        found: Any = read_weights(path)
    elif path.suffix.lower() in PICKLES:
        found = _unpickle(path)
    else:
        raise CheckpointError(f"{path} is no file of weights: expected .safetensors, {', '.join(PICKLES)}.")
    found = _unwrapped(found)
    if not isinstance(found, Mapping) or not found:
        raise CheckpointError(f"{path} holds a {type(found).__name__} where tensors by name were expected.")
    strange = [_shown(str(name)) for name, value in found.items() if not (isinstance(name, str) and _is_real(value))]
    if strange:
        raise CheckpointError(
            f"{path} holds more than tensors of real numbers ({', '.join(strange[:3])}). "
            f"Expected a table of them, or one under {' or '.join(map(repr, WRAPPERS))}."
        )
    for name, value in found.items():
        if value.is_meta or value.nbytes > value.untyped_storage().nbytes():
            raise CheckpointError(f"{path} is not loaded: {_shown(name)} has more values than the file holds.")
    tensors = {name.removeprefix(PREFIX): value for name, value in found.items() if not name.endswith(IGNORED)}
    twice = [name for name in tensors if name in found and PREFIX + name in found]
    if twice:
        raise CheckpointError(
            f"{path} holds {_shown(twice[0])} twice, with and without the prefix {PREFIX!r}. Keep one of the two."
        )
    bad = first_not_finite(tensors)
    if bad:
        raise CheckpointError(f"{path}: {_shown(bad)} holds values that are not finite. Fetch the file anew.")
    return tensors


def _unwrapped(found: Any) -> Any:
    """What lies in the wrappers; the number of layers is bounded because a pickle may hold itself."""
    for _ in WRAPPERS:
        if isinstance(found, Mapping):
            found = next((found[name] for name in WRAPPERS if isinstance(found.get(name), Mapping)), found)
    return found


def _is_real(value: Any) -> bool:
    """Whether it is a plain tensor of real numbers that can be computed with."""
    if not isinstance(value, Tensor) or value.is_nested or value.is_quantized or value.layout != torch.strided:
        return False
    return value.dtype in FLOATS or not (value.is_floating_point() or value.is_complex())


def _shown(name: str) -> str:
    """A name from the file in one line of its own: letters that do not print are escaped."""
    return name[:80] if name.isprintable() else repr(name[:80])


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _unpickle(path: Path) -> Any:
    """By the reader of PyTorch that runs no code; trainers also store their options, an argparse.Namespace."""
    try:
        with path.open("rb") as stream:
            start = stream.read(9)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error}).") from error
    try:
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings(action="ignore"):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the library's advice to open the file unsafely is not passed on
        raise CheckpointError(f"{path} is not loaded: {_why(error, start)}.") from None


def _why(error: Exception, start: bytes) -> str:
    """What is wrong with a pickle, in our words."""
    if not start:
        return "it is empty"
    if start[8:] == b"{":
        return "it is a safetensors file; give it the ending .safetensors"
    wanted = re.search(r"GLOBAL:? (?:GLOBAL )?(\S+)", str(error))
    if wanted:
        return f"it asks for {_shown(wanted[1])}, which could run code; save its tensors as safetensors instead"
    if not start.startswith(BEGINNINGS):
        return "it is not a PyTorch or safetensors file"
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than data, or it is damaged; save its tensors as safetensors instead"
    return "it is cut off or damaged; fetch it anew"


# ---- manifests ---------------------------------------------------------------------------------------------------
def manifest(tensors: Mapping[str, Tensor]) -> list[str]:
    """Sorted lines such as `pos_embed (1, 1024, 16, 16)`."""
    return sorted(f"{name} {tuple(value.shape)}" for name, value in tensors.items())


def manifest_hash(tensors: Mapping[str, Tensor]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the manifest, lines joined by newlines."""
    return hashlib.sha256("\n".join(manifest(tensors)).encode()).hexdigest()[:16]
