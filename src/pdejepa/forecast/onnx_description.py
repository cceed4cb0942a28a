"""forecast.json: all numbers that a forecast with ONNX files needs, and how they are used, in words.

    size       the rms of the first observed frame, or 1                                          `amplitude`
    xi         <- xi size^power;    c_j(xi) = product of powers, or a one-hot                     `coefficients`
    r_j        = sign (c_j - centre) / scale,   or  sign (ln c_j - centre) / scale
    q          = encoder((u / size - mean) / std)
    state      = q,   or (q, v) with v = (q - q of the frame before) / velocity_scale             `state`
    state(s+1) by an explicit Runge-Kutta method on  d state / ds = length field(state, r, F)     `integrator`
    u          = size (std decoder(q) + mean)

Time s counts frames; t = first_time + frame_gap s.  F is the forcing field at that time times `forcing.factor`.
"""

from __future__ import annotations

from typing import Any

from pdejepa import __version__
from pdejepa.core.config import to_dict
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.models.amplitude import check_scaling
from pdejepa.models.integrate import METHODS
from pdejepa.models.surrogate import MAX_FINER, Surrogate

FORMAT, FORMAT_VERSION = "pdejepa-onnx", 1
JSON_NAME = "forecast.json"


def describe(model: Forecaster, networks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The content of forecast.json; networks: shapes and hash of each ONNX file, by name."""
    surrogate, problem = model.surrogate, model.problem
    statistics = surrogate.statistics
    moments = zip(problem.fields, statistics.mean, statistics.std, strict=True)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "pdejepa": __version__,
        "weights_sha256": model.details.get("weights_sha256", ""),
        "system": problem.name,
        "title": problem.title,
        "equation": problem.equation,
        "how": _how(surrogate),
        "networks": {name: {"file": f"{name}.onnx", **shapes} for name, shapes in networks.items()},
        "fields": [{"name": name, "mean": mean, "std": std} for name, mean, std in moments],
        "axes": [to_dict(axis) for axis in problem.axes],
        "first_time": problem.times[0],
        "frame_gap": problem.frame_gap,
        "n_frames": len(problem.times),
        "history": surrogate.history,
        "parameters": [
            {
                "name": parameter.name,
                "symbol": parameter.symbol,
                "meaning": parameter.meaning,
                "unit": parameter.unit,
                "train": list(statistics.ranges[parameter.name]),
            }
            for parameter in problem.parameters
        ],
        "amplitude": _amplitude(surrogate),
        "coefficients": surrogate.conditioner.recipe_of_r(),
        "state": _state(surrogate),
        "integrator": _integrator(surrogate),
        "finer_steps": _finer_steps(surrogate),
        "forcing": _forcing(surrogate),
    }


def _amplitude(surrogate: Surrogate) -> dict[str, int] | None:
    """Powers of the size of the fields by which parameters are multiplied when fields are divided by their size."""
    if not surrogate.statistics.unit_ranges:
        return None
    return {name: -power for name, power in check_scaling(surrogate.problem).items()}


def _state(surrogate: Surrogate) -> dict[str, Any]:
    if not surrogate.is_second_order:
        return {"holds": ["q"]}
    return {"holds": ["q", "v"], "velocity_scale": surrogate.statistics.velocity_scale}


def _integrator(surrogate: Surrogate) -> dict[str, Any]:
    config = surrogate.config.field
    tableau = METHODS[config.integrator]
    return {
        "method": config.integrator,
        "a": [list(row) for row in tableau.a],
        "b": list(tableau.b),
        "c": list(tableau.c),
        "steps_per_frame": config.n_substeps,
        "length": surrogate.conditioner.frame_gap if config.time_unit == "physical" else 1.0,
    }


def _finer_steps(surrogate: Surrogate) -> dict[str, Any] | None:
    """Where terms are stronger than in training, `Surrogate.finer_steps` takes more steps per frame."""
    if surrogate.variant != "physics":
        return None
    ranges = surrogate.statistics.unit_ranges or surrogate.statistics.ranges
    return {
        "most": MAX_FINER,
        "ranges": {name: list(ends) for name, ends in ranges.items()},
        "coefficients": [term.name for term in surrogate.problem.structure.terms],
    }


def _forcing(surrogate: Surrogate) -> dict[str, Any] | None:
    conditioner = surrogate.conditioner
    if not conditioner.has_forcing_field:
        return None
    kind = surrogate.problem.structure.forcing
    return {"kind": kind, "factor": conditioner.forcing_factor.reshape(-1).tolist()}


def _how(surrogate: Surrogate) -> list[str]:
    """The steps of a forecast; what this model does not need is left out."""
    told = []
    if surrogate.statistics.unit_ranges:
        told.append(
            "size = rms of the first observed frame over all channels and points; divide the frames by it, and "
            "replace every parameter p by p size^amplitude[p] (0 where it is not named)"
        )
    told += [
        "c = product of parameter^power over `powers`, or 1 where all of `equals` hold and 0 elsewhere; c = ln c if "
        "`log`; r = sign (c - centre) / scale, one column per coefficient, float32 (without any: one column of zeros)",
        "q = encoder((u - mean) / std) for every observed frame",
    ]
    if surrogate.is_second_order:
        told.append(
            "of one observed frame alone: q of the next frame = q + startup(q, r), which is the first forecast frame; "
            "then state = (q, v) along the last axis with v = (q - q of the frame before) / velocity_scale"
        )
    told.append(
        "per frame `steps_per_frame` steps h = 1 / steps_per_frame of the Runge-Kutta method: "
        "k_i = field(state + h length sum_j a[i][j] k_j, r), state += h length sum_i b[i] k_i"
    )
    if surrogate.conditioner.has_forcing_field:
        told.append(
            "field takes `forcing` too: the forcing field of the equation at the time t of the stage, times `factor` "
            "of its channel; t = first_time + frame_gap (number of the frame + (step + c[i]) h)"
        )
    if _finer_steps(surrogate) is not None:
        told.append(
            "outside of the training range: strength = largest |c(p)| / |c(p clipped to `ranges`)| of the "
            "`coefficients` of finer_steps with a non-zero divisor, at least 1; steps_per_frame times strength, "
            "rounded, at most `most` times as many"
        )
    of_size = "size " if surrogate.statistics.unit_ranges else ""
    whole = "(std decoder(q) + mean)" if of_size else "std decoder(q) + mean"
    first = ", q the first half of the state" if surrogate.is_second_order else ""
    return [*told, f"u = {of_size}{whole}{first}"]
