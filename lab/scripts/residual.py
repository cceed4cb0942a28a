"""How well the residual of a forecast ranks its error: Spearman's rho on test and ood of the shipped models.

python lab/scripts/residual.py --n 60 --out lab/data/residual.json
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import torch
from scipy.stats import spearmanr

import pdejepa
from pdejepa.core.tables import Table
from pdejepa.forecast.residual import of_forecast, residuals

NAMES = ("advection", "burgers", "combined", "gray_scott", "heat")  # one frame of Wave-B is no state


def measured(name: str, split: str, n: int) -> dict[str, float | int | str]:
    model = pdejepa.load(name, "cpu")
    made = model.system.generate(split, n)
    floor = residuals(model.system, made.fields, made.xi, made.times).mean()
    result = model.forecast(made.fields[:, :1], made.xi)
    told = of_forecast(model.system, result).mean(1)
    apart, true = (result.fields - made.fields)[:, 1:].flatten(3), made.fields[:, 1:].flatten(3)
    error = (apart.flatten(1, 1).norm(dim=(1, 3)) / true.norm(dim=(1, 3))).mean(1)
    worst = int(error.argmax())
    return {
        "system": name,
        "split": split,
        "n": n,
        "error": float(error.mean()),
        "residual": float(told.mean()),
        "floor": float(floor),
        "spearman": float(spearmanr(told, error).statistic),
        "rank_of_worst": int((told > told[worst]).sum()) + 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = [measured(name, split, asked.n) for name in NAMES for split in ("test", "ood")]
    asked.out.write_text(json.dumps(rows, indent=1) + "\n")
    head = ("system", "split", "error", "residual", "of true frames", "Spearman", "rank of the worst")
    print(Table(head, [told(row) for row in rows]).markdown())


def told(row: dict[str, float | int | str]) -> list[str]:
    """One line of the table."""
    shares = [f"{row[word]:.2%}" for word in ("error", "residual")]
    rank = f"{row['rank_of_worst']} of {row['n']}"
    return [str(row["system"]), str(row["split"]), *shares, f"{row['floor']:.1e}", f"{row['spearman']:.2f}", rank]


if __name__ == "__main__":
    main()
