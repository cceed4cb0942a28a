"""Fine-tuning: a training that goes on from a trained model, on other data of the same kind.

    q = E(u) + G(E(u))       stay as they are, and with them the normalisation of fields and coefficients
    field, start-up head     go on from its weights in stage 3
    decoder                  goes on from its weights in stage 4; both together when polishing

Parameter ranges are those of the new data.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from pdejepa.core.config import differences, to_dict
from pdejepa.core.errors import ConfigError
from pdejepa.forecast.model_folder import load_surrogate
from pdejepa.method.run_config import TAKEN_OVER, RunConfig
from pdejepa.models.condition import Statistics
from pdejepa.models.surrogate import Surrogate
from pdejepa.systems.problem import Problem

PARTS = ("encoder", "projector", "field", "decoder")


def tuned_from(config: RunConfig, source: str) -> RunConfig:
    """The training that goes on from a model: its networks, without the stages that are taken over from it."""
    model, _ = load_surrogate(source, "cpu")
    stages = tuple(name for name in config.stages if name not in TAKEN_OVER)
    return dataclasses.replace(config, tuned_from=source, stages=stages, model=model.config, **_way(model))


def known_statistics(config: RunConfig, problem: Problem) -> Statistics | None:
    """What the model that a training goes on from was normalised with; ConfigError if it does not fit the data."""
    if not config.tuned_from:
        return None
    model, _ = load_surrogate(config.tuned_from, "cpu")
    now = {**{name: getattr(config, name) for name in _way(model)}, **_parts(config.model), **_kind(problem)}
    changed = differences({**_way(model), **_parts(model.config), **_kind(model.problem)}, now)
    if changed:
        raise ConfigError(
            f"{config.tuned_from} does not fit this training: {'; '.join(changed)[:300]}. Fine-tuning needs the same "
            "fields, grid, frame distance, parameters and networks."
        )
    return model.statistics


def take_weights(model: Surrogate, source: str) -> str:
    """Give a model the weights of the one that it goes on from, and return their hash."""
    given, details = load_surrogate(source, "cpu")
    model.load_state_dict(given.state_dict())
    return str(details["weights_sha256"])


def _way(model: Surrogate) -> dict[str, Any]:
    """Settings beside the networks that a model fixes."""
    amplitude = "unit" if model.statistics.unit_ranges else "as_is"
    return {"variant": model.variant, "history": model.history, "amplitude": amplitude}


def _parts(networks: Any) -> dict[str, Any]:
    """Sizes of what is taken over."""
    return {f"model.{name}": to_dict(getattr(networks, name)) for name in PARTS}


def _kind(problem: Problem) -> dict[str, Any]:
    """What data must have in common."""
    return {
        "fields": problem.fields,
        "grid": problem.grid,
        "boundaries": tuple(axis.boundary for axis in problem.axes),
        "frame distance": f"{problem.frame_gap:.6g}",
        "parameters": problem.parameter_names,
        "terms": tuple(term.name for term in problem.structure.terms),
        "forcing": problem.structure.forcing,
    }
