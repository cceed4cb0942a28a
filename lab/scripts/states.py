"""Error of a model on initial states that it was not trained on, parameters inside the training range.

    python lab/scripts/states.py [combined|gray_scott|wave_2d [MODEL]]
"""

import math
import sys

import torch
from torch import Tensor

import pdejepa
from pdejepa.evaluate.metrics import rel_l2, rel_l2_joint

N = 24
name = sys.argv[1] if len(sys.argv) > 1 else "combined"
model = pdejepa.load(sys.argv[2] if len(sys.argv) > 2 else name, "cpu")
system = model.system
own, xi = system.sample("test", range(N))
axes = list(system.axes.values())
n_gaps = len(axes[0]) - (name == "wave_2d")  # the others are periodic
length = n_gaps * float(axes[0][1] - axes[0][0])


def pulse(width: float, at: float = 0.5) -> Tensor:
    """A Gaussian of a width and at a place in parts of the box, on the grid."""
    return math.prod(((-(((axis / length) - at) ** 2) / (2 * width**2)).exp() for axis in meshed), start=torch.ones(()))


meshed = torch.meshgrid(*axes, indexing="ij")
wave, step = 2 * math.pi * meshed[0] / length, 0.05
edges = 0.5 * (((meshed[0] / length - 0.25) / step).tanh() - ((meshed[0] / length - 0.75) / step).tanh())
if name == "combined":
    STATES = {
        "one sine, mode 1": 0.5 * wave.sin(),
        "one sine, mode 8": 0.5 * (8 * wave).sin(),
        "tanh steps": edges - 0.5,
        "Gaussian pulse": pulse(0.0375),
        "offset and sine": 0.5 + 0.3 * wave.sin(),
    }
elif name == "wave_2d":  # at rest, and zero at the walls
    wall = math.prod(((math.pi * axis / length).sin() for axis in meshed), start=torch.ones(()))
    shapes = {
        "Gaussian pulse": pulse(0.08),
        "two pulses": pulse(0.06, 0.35) - pulse(0.06, 0.65),
        "offset and sine": wall * (1 + 0.6 * wave.sin()),
        "step": wall * edges,
    }
    STATES = {kind: torch.stack((u, torch.zeros_like(u))) for kind, u in shapes.items()}
else:  # gray_scott: the species u is used up where v is
    shapes = {
        "Gaussian pulse": 0.5 * pulse(0.1),
        "offset and sine": 0.2 + 0.1 * wave.sin() * (2 * math.pi * meshed[1] / length).sin(),
        "step": 0.4 * edges,
    }
    STATES = {kind: torch.stack((1 - 2 * v, v)) for kind, v in shapes.items()}

for kind, state in {"the test split": own, **STATES}.items():
    u0 = state.expand(own.shape).double()
    truth = system.solve(u0, xi).as_subclass(Tensor).float()
    found = model.forecast(truth[:, 0], xi)
    errors = (rel_l2_joint if name == "gray_scott" else rel_l2)(found.fields, truth)
    flagged = "flagged" if found.support.unlike else "not flagged"
    mean, median = 100 * float(errors.mean()), 100 * float(errors.median())
    print(f"{kind:20s} mean {mean:6.2f} %   median {median:6.2f} %   {flagged}", flush=True)
