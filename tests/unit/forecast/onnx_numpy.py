"""A forecast by forecast.json and nothing else, in numpy: what every step of `how` says, for any model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Forcing = Callable[[float], np.ndarray]  # physical time -> (C,*grid)


class OnnxModel:
    def __init__(self, folder: Path) -> None:
        import onnxruntime

        self.about: dict[str, Any] = json.loads((folder / "forecast.json").read_text())
        parts = self.about["networks"]
        self.sessions = {name: onnxruntime.InferenceSession(folder / part["file"]) for name, part in parts.items()}

    def call(self, name: str, **inputs: np.ndarray) -> np.ndarray:
        return self.sessions[name].run(None, {word: v.astype(np.float32) for word, v in inputs.items()})[0]

    def forecast(self, u: np.ndarray, xi: dict[str, float], n_new: int, forcing: Forcing | None = None) -> np.ndarray:
        """Observed frames (H,C,*grid) -> all frames (H+n,C,*grid), of one row."""
        about = self.about
        shape = (-1, *[1] * (u.ndim - 2))
        mean, std = (np.array([f[key] for f in about["fields"]]).reshape(shape) for key in ("mean", "std"))
        size = 1.0 if about["amplitude"] is None else float(np.sqrt((u[0].astype(float) ** 2).mean()))
        xi = {name: value * size ** (about["amplitude"] or {}).get(name, 0) for name, value in xi.items()}
        r = np.array([[_r(c, xi) for c in about["coefficients"]] or [0.0]])
        q = [self.call("encoder", u=(frame[None] / size - mean) / std) for frame in u]
        n_encoded = len(q)
        if "v" in about["state"]["holds"]:
            q += [q[0] + self.call("startup", q=q[0], r=r)] if len(q) == 1 else []
            state = np.concatenate((q[-1], (q[-1] - q[-2]) / about["state"]["velocity_scale"]), -1)
        else:
            state = q[-1]
        n_steps = self._steps(xi)
        while len(q) < n_encoded + n_new:
            state = self._frame(state, r, len(q) - 1, n_steps, forcing)
            q.append(state[..., : q[0].shape[-1]])
        new = [size * (std * self.call("decoder", q=one)[0] + mean) for one in q[n_encoded:]]
        return np.concatenate((u, np.stack(new)))

    def _frame(self, state: np.ndarray, r: np.ndarray, frame: int, n: int, forcing: Forcing | None) -> np.ndarray:
        """The state one frame later."""
        rule, about = self.about["integrator"], self.about
        h = rule["length"] / n
        for m in range(n):
            k: list[np.ndarray] = []
            for row, c in zip(rule["a"], rule["c"], strict=True):
                given = {"state": state + h * sum(w * rate for w, rate in zip(row, k, strict=True)), "r": r}
                if about["forcing"] is not None:
                    assert forcing is not None
                    t = about["first_time"] + about["frame_gap"] * (frame + (m + c) / n)
                    field = forcing(t)  # (C,*grid)
                    given["forcing"] = (field * _like(about["forcing"]["factor"], field))[None]
                k.append(self.call("field", **given))
            state = state + h * sum(w * rate for w, rate in zip(rule["b"], k, strict=True))
        return state

    def _steps(self, xi: dict[str, float]) -> int:
        n, finer = self.about["integrator"]["steps_per_frame"], self.about["finer_steps"]
        if finer is None:
            return n
        near = {name: float(np.clip(value, *finer["ranges"][name])) for name, value in xi.items()}
        known = [c for c in self.about["coefficients"] if c["name"] in finer["coefficients"]]
        pairs = [(abs(_c(c, xi)), abs(_c(c, near))) for c in known]
        strength = max([1.0, *(now / then for now, then in pairs if then > 0)])
        return min(round(n * strength), n * finer["most"])


def _c(how: dict[str, Any], xi: dict[str, float]) -> float:
    if "equals" in how:
        return float(all(xi[name] == value for name, value in how["equals"].items()))
    return float(np.prod([xi[name] ** power for name, power in how["powers"].items()]))


def _r(how: dict[str, Any], xi: dict[str, float]) -> float:
    c = _c(how, xi)
    return how["sign"] * ((np.log(c) if how["log"] else c) - how["centre"]) / how["scale"]


def _like(factor: list[float], field: np.ndarray) -> np.ndarray:
    return np.array(factor).reshape(-1, *[1] * (field.ndim - 1))
