"""Models on disk: three files, no pickle, every byte checked before it is used.

    MODEL/
      weights.safetensors     tensors named as in Surrogate.state_dict()
      README.md               the model card
      config.json             everything else (see `header`), with the hash of the weights; written last

A crash while an older model is replaced leaves a pair of files whose hashes disagree, which is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from pdejepa.core.errors import CheckpointError
from pdejepa.core.files import sha256_file, write_json
from pdejepa.core.weights import check_match, first_not_finite, read_weights, restore, write_weights
from pdejepa.forecast.bands import remove_others
from pdejepa.forecast.header import CONFIG_NAME, describe, parse, read
from pdejepa.forecast.locate import WEIGHTS_NAME, find_model
from pdejepa.models.surrogate import Surrogate

CARD_NAME = "README.md"
DTYPES = {"float32": torch.float32, "float16": torch.float16}


def write_model(
    surrogate: Surrogate,
    folder: str | os.PathLike[str],
    details: Mapping[str, Any],
    dtype: Literal["float32", "float16"] = "float32",
) -> dict[str, Any]:
    """Write weights, then config.json; return the content of the latter.  The card is `pdejepa.method.save_model`'s."""
    root = Path(folder)
    plain = describe(surrogate, dict(details), {"weights_sha256": "", "weights_bytes": 0, "weights_dtype": dtype})
    tensors = {name: tensor.detach().to(DTYPES[dtype]) for name, tensor in surrogate.state_dict().items()}
    bad = first_not_finite(tensors)
    if bad:
        raise CheckpointError(f"{bad} holds values that are not finite in {dtype}; the model is not saved.")
    path = root / WEIGHTS_NAME
    write_weights(path, tensors)
    plain |= {"weights_sha256": sha256_file(path), "weights_bytes": path.stat().st_size}
    remove_others(root, plain["weights_sha256"])
    write_json(root / CONFIG_NAME, plain)
    return plain


def load_surrogate(path: str | os.PathLike[str], device: str | torch.device) -> tuple[Surrogate, dict[str, Any]]:
    """The model in a run folder, a model folder, or of a shipped name, and the content of its config.json."""
    folder = find_model(path)
    plain = read(folder)
    header = parse(plain, folder / CONFIG_NAME)
    weights = folder / WEIGHTS_NAME
    tensors = _read(weights, header.weights_sha256)
    # First without memory: a description that does not fit its file must not be able to fill the machine.
    described = header.build("meta").state_dict()
    check_match(tensors, {k: t.to(DTYPES[header.weights_dtype]) for k, t in described.items()}, str(weights))
    surrogate = header.build()
    parts = dict(surrogate.named_children())
    restore(parts, {name: tensor.float() for name, tensor in tensors.items()}, str(weights))
    return surrogate.to(device).eval().requires_grad_(False), plain


def _read(path: Path, sha256: str) -> dict[str, Tensor]:
    """The tensors of the file with that hash.  Reading comes first: it can say what a wrong file is."""
    if not path.exists():
        raise CheckpointError(f"{path} is missing: {CONFIG_NAME} without weights is not a model.")
    tensors = read_weights(path)
    if sha256_file(path) != sha256:
        raise CheckpointError(f"{path} is damaged or of another model: its hash is not the one in {CONFIG_NAME}.")
    return tensors
