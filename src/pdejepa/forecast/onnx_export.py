"""A model for programs without PyTorch: its networks as ONNX files, and one JSON that says what to do with them.

    FOLDER/
      encoder.onnx     u (B,C,*grid)                  -> q (B,N,D)          one normalised frame
      field.onnx       state (B,N,S), r, forcing      -> rate (B,N,S)       d state / d s
      decoder.onnx     q (B,N,D)                      -> u (B,C,*grid)      normalised
      startup.onnx     q (B,N,D), r                   -> change (B,N,D)     second-order systems only: q_1 - q_0
      forecast.json    everything else (see `onnx_description`); written last

The number of rows B is free, and all values are float32.  Every network is run by onnxruntime, on one state of the
system, before anything is written.
Letters: B rows, C channels, *grid spatial axes, N tokens, D latent width, S state width (D or 2D), M terms.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pdejepa.core.atomic import write_aside, write_json
from pdejepa.core.device import full_precision
from pdejepa.core.errors import NumericalError, ResourceError, UsageError
from pdejepa.core.files import read_json
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.forecast.onnx_description import FORMAT, JSON_NAME, describe
from pdejepa.models.condition import Drive
from pdejepa.models.surrogate import Surrogate
from pdejepa.models.waves import LinearWaves

OPSET = 18
TOLERANCE = 1e-5  # relative L2 between onnxruntime and PyTorch
EXTRA = "pip install 'pdejepa[onnx]'"


@dataclass(frozen=True)
class OnnxFiles:
    """What was written: bytes of every file, and how far each network is from PyTorch's, relative L2."""

    folder: Path
    n_bytes: dict[str, int]
    apart: dict[str, float]


class EncoderPart(nn.Module):
    """q of one normalised frame."""

    def __init__(self, model: Surrogate) -> None:
        super().__init__()
        self.model = model

    def forward(self, u: Tensor) -> Tensor:
        return self.model.encode(u[:, None])[:, 0]


class FieldPart(nn.Module):
    """The right-hand side of the latent ODE as a function of state, coefficients and forcing field alone."""

    def __init__(self, model: Surrogate) -> None:
        super().__init__()
        self.field, self.patches = model.field, model.patches
        self.n_terms = model.conditioner.n_coefficients

    def forward(self, state: Tensor, r: Tensor, forcing: Tensor | None = None) -> Tensor:
        tokens = None if forcing is None else self.patches.split(forcing)  # (B,N,C p^k)
        drive = Drive(r[:, : self.n_terms], None if tokens is None else lambda _: tokens)
        return self.field(state, r[:, 0], drive)  # of the time only the forcing is a function


class StartupPart(nn.Module):
    """q_1 - q_0 of a second-order system."""

    def __init__(self, model: Surrogate) -> None:
        super().__init__()
        self.model = model

    def forward(self, q: Tensor, r: Tensor) -> Tensor:
        return self.model.first_change(q, Drive(r[:, : self.model.conditioner.n_coefficients]))


class DecoderPart(nn.Module):
    """The normalised frame of q."""

    def __init__(self, model: Surrogate) -> None:
        super().__init__()
        self.model = model

    def forward(self, q: Tensor) -> Tensor:
        return self.model.decode(q)


def export_onnx(model: Forecaster, folder: str | os.PathLike[str]) -> OnnxFiles:
    """Write the networks and forecast.json to `folder`, which must be new, empty, or hold such an export."""
    _refuse_what_is_no_field(model.surrogate)
    root = Path(folder)
    _check_target(root)
    _need_packages()
    files, apart, shapes = {}, {}, {}
    with full_precision(torch.device("cpu")), torch.no_grad(), _in_silence():
        for name, (network, inputs, output) in _networks(model).items():
            files[name] = _onnx_bytes(network, inputs, output)
            result = network(*inputs.values())
            apart[name] = _apart(name, files[name], inputs, result)
            shapes[name] = {
                "inputs": {word: ["rows", *value.shape[1:]] for word, value in inputs.items()},
                "outputs": {output: ["rows", *result.shape[1:]]},
                "sha256": hashlib.sha256(files[name]).hexdigest(),
            }
    return OnnxFiles(root, _write(root, files, describe(model, shapes)), apart)


def _refuse_what_is_no_field(model: Surrogate) -> None:
    if isinstance(model.field, LinearWaves):
        raise UsageError(
            "This model solves its latent waves exactly and has no vector field to integrate "
            "(field.integrator=exact), so it cannot be exported as ONNX."
        )
    if model.variant == "direct":
        raise UsageError("The variant direct jumps from frame to frame and has no vector field; it cannot be exported.")


def _check_target(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file; give a new folder for the ONNX files.")
    if not root.is_dir() or not any(root.iterdir()):
        return
    with contextlib.suppress(ValueError, AttributeError):
        if read_json(root / JSON_NAME).get("format") == FORMAT:
            return
    raise UsageError(f"{root} is not empty and holds no export, so nothing in it is overwritten. Give a new folder.")


def _need_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ResourceError(f"Export to ONNX needs the package {error.name}. Get it with: {EXTRA}") from None


def _networks(model: Forecaster) -> dict[str, tuple[nn.Module, dict[str, Tensor], str]]:
    """Every network with inputs as they come up in a forecast, two rows, and the name of its output."""
    surrogate = copy.deepcopy(model.surrogate).to("cpu").eval()
    u, xi = _two_frames(model)
    size, xi = surrogate.sized(u, xi)
    normal = surrogate.normalise(u / size)[:, 0]  # (2,C,*grid)
    q = surrogate.encode(normal[:, None])[:, 0]
    r = surrogate.conditioner.r(xi)
    r = r if r.shape[1] else r.new_zeros(len(r), 1)
    state = {"state": surrogate.state(q.flip(0), q) if surrogate.is_second_order else q, "r": r}
    if surrogate.conditioner.has_forcing_field:
        state["forcing"] = 0.1 * torch.randn(u[:, 0].shape, generator=torch.Generator().manual_seed(0))
    found: dict[str, tuple[nn.Module, dict[str, Tensor], str]] = {
        "encoder": (EncoderPart(surrogate), {"u": normal}, "q"),
        "field": (FieldPart(surrogate), state, "rate"),
        "decoder": (DecoderPart(surrogate), {"q": q}, "u"),
    }
    if surrogate.is_second_order:
        found["startup"] = (StartupPart(surrogate), {"q": q, "r": r}, "change")
    return found


def _two_frames(model: Forecaster) -> tuple[Tensor, Tensor]:
    """Smooth frames (2,1,C,*grid) of the size of the training data, and parameters (2,P) inside its ranges."""
    problem, statistics = model.problem, model.surrogate.statistics
    draws = torch.Generator().manual_seed(0)
    coarse = torch.randn((2, len(problem.fields), *[8] * problem.ndim), generator=draws)
    mode = "linear" if problem.ndim == 1 else "bilinear"
    mean, std = statistics.moments(problem.ndim, torch.device("cpu"))
    u = mean + std * nn.functional.interpolate(coarse, size=problem.grid, mode=mode)
    low, high = (
        torch.tensor([statistics.ranges[name][end] for name in problem.parameter_names], dtype=torch.float64)
        for end in (0, 1)
    )
    return u[:, None], torch.stack((low, (low + high) / 2))


def _onnx_bytes(network: nn.Module, inputs: dict[str, Tensor], output: str) -> bytes:
    program = torch.onnx.export(
        network,
        tuple(inputs.values()),
        input_names=list(inputs),
        output_names=[output],
        dynamic_shapes=tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs),
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    return program.model_proto.SerializeToString()


def _apart(name: str, file: bytes, inputs: dict[str, Tensor], expected: Tensor) -> float:
    """Relative L2 between onnxruntime, row by row and all rows at once, and PyTorch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

    def run(rows: slice) -> Tensor:
        (found,) = session.run(None, {word: value[rows].numpy() for word, value in inputs.items()})
        return torch.from_numpy(found)

    one_by_one = torch.cat([run(slice(row, row + 1)) for row in range(len(expected))])
    apart = max(
        float((found - expected).double().norm() / expected.double().norm().clamp(min=1e-30))
        for found in (one_by_one, run(slice(None)))
    )
    if not apart <= TOLERANCE:
        raise NumericalError(
            f"onnxruntime is {apart:.1e} off PyTorch in the {name}, more than {TOLERANCE:g}; nothing was written."
        )
    return apart


def _write(root: Path, files: dict[str, bytes], description: dict[str, Any]) -> dict[str, int]:
    """All files; forecast.json, which has the hashes of the others, goes first and comes last."""
    (root / JSON_NAME).unlink(missing_ok=True)
    for name, file in files.items():
        with write_aside(root / f"{name}.onnx") as temporary:
            temporary.write_bytes(file)
    write_json(root / JSON_NAME, description)
    return {path.name: path.stat().st_size for path in (*(root / f"{name}.onnx" for name in files), root / JSON_NAME)}


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """Without what the exporter says about packages that are not needed and about PyTorch's own future."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
