"""Forecast Gray-Scott from ONNX files, with numpy and onnxruntime alone.

    pdejepa export gray_scott --onnx gray_scott_onnx
    python examples/forecast_with_onnx.py gray_scott_onnx u0.npy forecast.npy feed=0.035 kill=0.06

u0.npy holds one frame (C,*grid), forecast.npy all frames (T,C,*grid).  For systems of first order without a forcing
whose fields are taken as they are; forecast.json says what others need.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

folder, first, out, *values = sys.argv[1:]
about = json.loads((Path(folder) / "forecast.json").read_text())
if about["forcing"] or about["amplitude"] or len(about["state"]["holds"]) > 1:
    sys.exit(f"{about['system']} needs more than this example does; see `how` in forecast.json.")
xi = {name: float(value) for name, value in (word.split("=") for word in values)}
networks = {name: onnxruntime.InferenceSession(f"{folder}/{name}.onnx") for name in about["networks"]}


def call(name, **inputs):
    return networks[name].run(None, {word: value.astype(np.float32) for word, value in inputs.items()})[0]


def coefficient(c):
    value = np.prod([xi[name] ** power for name, power in c["powers"].items()])
    return c["sign"] * ((np.log(value) if c["log"] else value) - c["centre"]) / c["scale"]


u0 = np.load(first)[None]  # (1,C,*grid)
r = np.array([[coefficient(c) for c in about["coefficients"]]])  # (1,M)
mean, std = (np.array([f[key] for f in about["fields"]]).reshape(-1, *[1] * (u0.ndim - 2)) for key in ("mean", "std"))
rule = about["integrator"]
h = rule["length"] / rule["steps_per_frame"]

q, frames = call("encoder", u=(u0 - mean) / std), [u0]  # (1,N,D)
for _ in range(about["n_frames"] - 1):
    for _ in range(rule["steps_per_frame"]):
        k = []
        for row in rule["a"]:
            k.append(call("field", state=q + h * sum(w * rate for w, rate in zip(row, k, strict=True)), r=r))
        q = q + h * sum(w * rate for w, rate in zip(rule["b"], k, strict=True))
    frames.append(mean + std * call("decoder", q=q))
np.save(out, np.concatenate(frames).astype(np.float32))
