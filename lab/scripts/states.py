"""Error of a shipped model on initial states that it was not trained on, parameters inside the training range.

    python lab/scripts/states.py
"""

import math

from torch import Tensor

import pdejepa
from pdejepa.evaluate.metrics import rel_l2

N = 24
model = pdejepa.load("combined", "cpu")
system = model.system
own, xi = system.sample("test", range(N))
x = system.axes["x"]
wave = 2 * math.pi * x / 16
STATES = {
    "the test split": own,
    "one sine, mode 1": 0.5 * wave.sin(),
    "one sine, mode 8": 0.5 * (8 * wave).sin(),
    "tanh steps": 0.5 * (((x - 4) / 0.8).tanh() - ((x - 12) / 0.8).tanh() - 1),
    "Gaussian pulse": (-((x - 8) ** 2) / 0.72).exp(),
    "offset and sine": 0.5 + 0.3 * wave.sin(),
}
for name, state in STATES.items():
    u0 = (state if state.ndim == 3 else state.expand(N, 1, -1)).double()
    truth = system.solve(u0, xi).as_subclass(Tensor).float()
    found = model.forecast(truth[:, 0], xi)
    errors = rel_l2(found.fields, truth)
    flagged = "flagged" if found.support.unlike else "not flagged"
    mean, median = 100 * float(errors.mean()), 100 * float(errors.median())
    print(f"{name:20s} mean {mean:6.2f} %   median {median:6.2f} %   {flagged}")
