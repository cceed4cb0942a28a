"""What limits a model: its representation, its dynamics or its decoder.

    direct       true frames, encoded and decoded
    one step     true latents of every frame, advanced by one frame, decoded
    forecast     from the observed frames alone
    latent       the same two without the decoder: |q_hat - q| / |q| of one step and of the whole rollout

Fields: relative L2 over frames and space, mean over channels and trajectories, over the frames a forecast is judged on.

Polishing moves field and decoder and leaves the encoder, so the latents of rollouts leave those of true frames: of a
polished model only the forecast counts, the rest tells how far it has gone.

    python lab/scripts/limits.py RUN/model-four-stages RUN/model --n 120 --out results/limits-cpu.json
    python benchmarks/tables.py lab/*.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor

import pdejepa
from pdejepa.core.device import device_name, full_precision
from pdejepa.core.files import write_json
from pdejepa.core.progress import progress
from pdejepa.evaluate import metrics
from pdejepa.forecast.forecaster import Forecaster
from pdejepa.models.condition import Drive
from pdejepa.models.surrogate import Surrogate

ROWS = 12  # trajectories at once


def one_steps(model: Surrogate, q: Tensor, drive: Drive, fractions: Tensor | None) -> Tensor:
    """Latents (B,T-H,N,D) of the frames H .. T-1, each from the true ones before it."""
    reached = []
    for t in range(model.history - 1, q.shape[1] - 1):
        state = model.state(q[:, t - 1], q[:, t]) if model.is_second_order else q[:, t]
        s = torch.full((len(q),), float(t), device=q.device)
        reached.append(model.advance(state, s, drive, 1, fractions)[..., : q.shape[-1]])
    return torch.cat(reached, 1)


def parts(model: Surrogate, u: Tensor, xi: Tensor) -> dict[str, Tensor]:
    """All errors of trajectories u (B,T,C,*grid) with xi (B,P), (B,) each."""
    H = model.history
    size, own = model.sized(u, xi)
    drive, fractions = model.drive(own), model.finer_steps(own)
    q = model.encode(model.normalise(u / size))  # (B,T,N,D)
    latents = {
        "direct": q[:, H:],
        "one_step": one_steps(model, q, drive, fractions),
        "forecast": model.rollout(q[:, :H], drive, q.shape[1] - H, fractions)[:, H:],
    }
    found = {}
    for name, guess in latents.items():
        fields = torch.cat((u[:, :H], size * model.denormalise(model.decode(guess))), 1)
        found[name] = metrics.rel_l2(fields, u, H)
        if name != "direct":
            found[f"latent_{name}"] = (guess - q[:, H:]).flatten(1).norm(dim=1) / q[:, H:].flatten(1).norm(dim=1)
    return found


@torch.no_grad()
def measure(forecaster: Forecaster, split: str, n: int) -> dict[str, float]:
    """Means over the first n trajectories of a split."""
    made = forecaster.system.generate(split, n, forecaster.device)
    tables = []
    with progress(n, f"{forecaster.system.name} {split}") as bar, full_precision(forecaster.device):
        for u, xi in zip(made.fields.float().split(ROWS), made.xi.split(ROWS), strict=True):
            tables.append(parts(forecaster.surrogate, u, xi))
            bar.advance(len(u))
    return {name: float(torch.cat([table[name] for table in tables]).mean()) for name in tables[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names of shipped models, or folders")
    parser.add_argument("--n", type=int, default=120, help="trajectories of each split")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/limits-cpu.json"))
    options = parser.parse_args()
    limits = []
    for name in options.models:
        forecaster = pdejepa.load(name, options.device)
        known = {key: forecaster.details[key] for key in ("system", "recipe", "polish", "seed", "weights_sha256")}
        for split in (s for s in forecaster.system.splits if s.name == "test" or s.is_ood):
            n = min(options.n, split.n)
            limits.append({**known, "split": split.name, "n": n, **measure(forecaster, split.name, n)})
            print(json.dumps(limits[-1]), flush=True)
            write_json(options.out, {"device": device_name(forecaster.device), "limits": limits})


if __name__ == "__main__":
    main()
