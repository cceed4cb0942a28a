"""Gradients of a step: fresh every time, and on a GPU the same whether recorded or not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pdejepa.core.device import full_precision
from pdejepa.method.chain import BUILD
from pdejepa.method.load_data import load_data
from pdejepa.method.method_stage import MethodStage
from pdejepa.models.blocks import compile_blocks
from pdejepa.models.surrogate import Surrogate
from pdejepa.training.cuda_graph import Gradients
from pdejepa.training.optim import build_optimiser
from pdejepa.training.resume import choose_trained
from pdejepa.training.stage import Batch, Context
from tests.gpu import needs_cuda
from tests.unit.method.small_run import CPU, small_config

CUDA = torch.device("cuda")


class Line(nn.Module):
    """loss = mean of (w x)^2, so d loss / d w = 2 w <x^2>."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(3.0))

    def forward(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"loss": (self.w * batch["x"]).square().mean()}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_every_call_has_gradients_of_its_own(device: str) -> None:
    line = Line().to(device)
    gradients = Gradients(line, [line.w], lambda: torch.autocast("cpu", enabled=False), device == "cuda")
    for x in (torch.ones(4), 2 * torch.ones(4), torch.ones(6), torch.zeros(4)):
        metrics = gradients({"x": x.to(device)})
        square = float(x.square().mean())
        assert float(metrics["loss"].detach()) == 9 * square
        assert line.w.grad is not None
        assert float(line.w.grad) == 6 * square
    gradients.forget()
    assert line.w.grad is None


def _stage(
    name: str, system: str, words: tuple[str, ...], device: torch.device = CUDA, is_compiled: bool = True
) -> MethodStage:
    config = small_config(system, *words)
    data = load_data(config, CPU, show=False)  # small solves are faster there
    data.fields, data.xi = ({split: t.to(device) for split, t in part.items()} for part in (data.fields, data.xi))
    torch.manual_seed(0)
    model = Surrogate(data.problem, config.model, config.variant, data.statistics, config.history).to(device)
    stage = BUILD[name](config, data, model, Context(device))
    if device.type == "cuda" and is_compiled:
        compile_blocks(stage)
    choose_trained(stage)
    return stage


def _losses(stage: MethodStage, should_record: bool, n_steps: int = 8) -> list[float]:
    """Train some steps."""
    optimiser = build_optimiser(stage.trained(), stage.settings.optimiser)
    autocast = lambda: torch.autocast("cuda", torch.bfloat16)  # noqa: E731
    gradients = Gradients(stage, list(optimiser.parameters.values()), autocast, should_record)
    losses = []
    for step in range(n_steps):
        with torch.no_grad():
            batch = stage.batch(step, n_steps)
        losses.append(float(gradients(batch)["loss"].detach()))
        optimiser.step()
        with torch.no_grad():
            stage.after_update(step, n_steps)
    return losses


@needs_cuda
@pytest.mark.parametrize("system", ["combined", "burgers", "wave_b", "heterns", "gray_scott"])
@pytest.mark.parametrize("name", list(BUILD))
def test_recorded_steps_train_like_plain_ones(name: str, system: str) -> None:
    words = ("polish.recompute=true",) if system == "burgers" else ()
    plain, recorded = (_losses(_stage(name, system, words), flag) for flag in (False, True))
    assert recorded == pytest.approx(plain, rel=2e-2)
    assert len(set(recorded)) > 4


@needs_cuda
@pytest.mark.parametrize("word", ["dynamics.tangent_weight=0.1", "dynamics.response_weight=0.1", "dynamics.unroll=3"])
def test_options_of_dynamics_can_be_recorded(word: str) -> None:
    plain, recorded = (_losses(_stage("dynamics", "burgers", (word,)), flag) for flag in (False, True))
    assert recorded == pytest.approx(plain, rel=2e-2)


# Sizes of the networks that ship, on a line: 64 tokens, and one more where the parameters are a token.
LONG = (
    "switches.n_points=256",
    "model.encoder={patch: 4, width: 128, depth: 1, heads: 4}",
    "model.field={width: 144, depth: 2, heads: 3, n_substeps: 2}",
)


def _gradients(variant: str, device: torch.device, should_record: bool, precision: str = "fp32") -> torch.Tensor:
    """Of the loss of one batch, as one long vector, with weights that are far from zero."""
    stage = _stage("dynamics", "combined", (*LONG, f"variant={variant}"), device, is_compiled=precision == "bf16")
    parameters = list(stage.model.field.parameters())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad(), full_precision(device):
        for parameter in parameters:
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator).to(device))
        states = torch.randn((16, 2, 64, 128), generator=generator).to(device)
        batch = {**stage.batch(0, 10), "states": states}
    autocast = lambda: torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")  # noqa: E731
    gradients = Gradients(stage, parameters, autocast, should_record)
    with full_precision(device):
        for _ in range(2):
            gradients(batch)
    return torch.cat([p.grad.flatten().double().cpu() for p in parameters if p.grad is not None])


ON_GPU = [(precision, "cuda", flag) for precision in ("fp32", "bf16") for flag in (False, True)]


@pytest.mark.parametrize("variant", ["physics", "geo", pytest.param("vanilla", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("precision", "device", "should_record"),
    [("bf16", "cpu", False), *(pytest.param(*case, marks=needs_cuda) for case in ON_GPU)],
)
def test_gradients_are_those_of_float32(precision: str, device: str, should_record: bool, variant: str) -> None:
    """Compiled, those of the variants with 65 tokens have been wrong by a factor of 10^5, while the loss was right."""
    expected = _gradients(variant, CPU, False)
    found = _gradients(variant, torch.device(device), should_record, precision)
    allowed = {"fp32": 1e-3, "bf16": 0.1}[precision]
    assert 0 < float((found - expected).norm()) <= allowed * float(expected.norm())
