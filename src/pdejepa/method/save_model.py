"""A trained model written to disk with its card; reading is `pdejepa.forecast.model_folder`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from pdejepa.core.files import write_json, write_text
from pdejepa.forecast.header import CONFIG_NAME, parse, read
from pdejepa.forecast.model_folder import CARD_NAME, write_model
from pdejepa.method.model_card import card_text
from pdejepa.models.decoder import ReadOut
from pdejepa.models.surrogate import Surrogate

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)


def save_model(
    surrogate: Surrogate,
    folder: str | os.PathLike[str],
    details: dict[str, Any],
    dtype: Literal["float32", "float16"] = "float32",
) -> str:
    """Write the model and return the sha256 of its weights.

    `details` may tell recipe, polish, seed, lineage, data_hash, seconds, device, torch, commit, errors and size;
    what the model knows itself (system, sizes, statistics) is added.
    """
    plain = write_model(surrogate, folder, details, dtype)
    write_words(Path(folder), surrogate, plain)
    return str(plain["weights_sha256"])


def record_errors(surrogate: Surrogate, folder: str | os.PathLike[str], errors: dict[str, Any]) -> None:
    """Add errors {split: {...}} to config.json and the model card; the weights stay as they are."""
    root = Path(folder)
    plain = read(root)
    plain["errors"] = {**plain["errors"], **errors}
    parse(plain, root / CONFIG_NAME)
    write_words(root, surrogate, plain)


def write_words(root: Path, surrogate: Surrogate, plain: dict[str, Any]) -> None:
    """config.json from its content `plain`, and the card; config.json last."""
    write_text(root / CARD_NAME, card_text(surrogate.problem, plain, rounded_parts(surrogate)))
    write_json(root / CONFIG_NAME, plain)


def rounded_parts(surrogate: Surrogate) -> tuple[str, ...]:
    """Of field and decoder, those whose layers hold values of bfloat16; a CPU trains the decoder in float32."""
    field: list[nn.Module] = [part for part in (surrogate.field, surrogate.startup) if part is not None]
    parts: dict[str, list[nn.Module]] = {"field": field, "decoder": [surrogate.decoder]}
    return tuple(name for name, modules in parts.items() if all(map(_is_rounded, modules)))


def _is_rounded(part: nn.Module) -> bool:
    layers = rounded_layers(part).values()
    return all(torch.equal(p, p.bfloat16().to(p.dtype)) for layer in layers for p in layer.parameters())


def rounded_layers(part: nn.Module) -> dict[str, nn.Module]:
    """The layers that training on a GPU computes in bfloat16: not read-outs, nor what reads parameters of the PDE."""
    found, exact = dict(part.named_modules()), set[int]()
    for name, module in found.items():
        if isinstance(module, ReadOut) or name.rpartition(".")[2] == "condition":
            exact |= {id(layer) for layer in module.modules()}
    return {name: layer for name, layer in found.items() if isinstance(layer, LAYERS) and id(layer) not in exact}
