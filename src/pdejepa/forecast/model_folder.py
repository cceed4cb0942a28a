"""Models on disk: three files, no pickle, every byte checked before it is used.

    MODEL/
      weights.safetensors     tensors named as in Surrogate.state_dict()
      README.md               the model card
      config.json             everything else (see `header`), with the hash of the weights; written last

A crash while an older model is replaced leaves a pair of files whose hashes disagree, which is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pdejepa.core.errors import CheckpointError
from pdejepa.core.files import sha256_file
from pdejepa.core.weights import check_match, read_weights, restore
from pdejepa.forecast.header import CONFIG_NAME, parse, read
from pdejepa.forecast.locate import WEIGHTS_NAME, find_model
from pdejepa.models.surrogate import Surrogate

CARD_NAME = "README.md"
DTYPES = {"float32": torch.float32, "float16": torch.float16}


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
        raise CheckpointError(f"{path} is missing: {CONFIG_NAME} without weights is no model.")
    tensors = read_weights(path)
    if sha256_file(path) != sha256:
        raise CheckpointError(f"{path} is damaged or of another model: its hash is not the one in {CONFIG_NAME}.")
    return tensors
