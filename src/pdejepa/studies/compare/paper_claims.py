"""Relative L2 errors that the PDE-JEPA paper prints for its comparison (test / ood), for the ledger of a report.

They come from other budgets and partly from other protocols: the numbers of CAPE, CoDA, ViT-in-context, [CLS] ViT and
Zebra were quoted there from earlier work, DPOT-S and Poseidon-T were fine-tuned from published weights.  None: not
printed, or the solver diverged.
"""

from __future__ import annotations

from pdejepa.evaluate import published as ours
from pdejepa.evaluate.record import METHOD
from pdejepa.systems import System

Errors = tuple[float | None, float | None]

PUBLISHED: dict[str, dict[str, Errors]] = {
    "combined": {
        "fno": (0.0374, None),
        "cape": (0.0085, None),
        "coda": (0.0120, None),
        "geps": (0.0097, 0.570),
        "vit_in_context": (0.0885, None),
        "cls_vit": (0.0446, None),
        "zebra": (0.0096, None),
        "unisolver": (0.0087, 0.038),
        "mpp": (0.0519, None),
        "dpot": (0.0365, None),
        "poseidon": (0.0137, 0.146),
        "le_pde": (0.0299, 0.169),
        "lns": (0.0136, 0.1667),
        "mae_pde": (0.0667, 0.254),
        "enma": (0.0160, 0.243),
    },
    "gray_scott": {
        "fno": (0.0547, 0.192),
        "geps": (0.0332, 0.184),
        "vit_in_context": (0.0690, None),
        "cls_vit": (0.0480, None),
        "zebra": (0.0440, None),
        "unisolver": (0.0323, 0.1636),
        "mpp": (0.2698, None),
        "dpot": (0.4159, 0.597),
        "poseidon": (0.0544, 0.083),
        "le_pde": (0.1225, 0.239),
        "lns": (0.0734, 0.146),
        "mae_pde": (0.0406, 0.196),
        "enma": (0.0607, 0.134),
    },
}
# Optimiser steps of the paper's trainings, all stages together, on a line and on a plane, where its tables tell them.
STEPS = {
    "fno": (188_000, 188_000),
    "geps": (3_750_000, 3_750_000),
    "unisolver": (19_000, 19_000),
    "mpp": (62_500, 62_500),
    "dpot": (150_000, 150_000),
    "poseidon": (19_000, 19_000),
    "le_pde": (41_000, 132_000),
    "lns": (162_000, 162_000),
    "mae_pde": (2_800, 30_000),
    "enma": (188_000, 188_000),
}
QUOTED = ("cape", "coda", "vit_in_context", "cls_vit", "zebra")
FINE_TUNED = ("dpot", "poseidon")


def published(system: str, solver: str) -> Errors | None:
    """What is printed for a solver on a system; None if nothing is."""
    if solver == METHOD and system in ours.PUBLISHED:
        return ours.PUBLISHED[system].id, ours.PUBLISHED[system].ood.get("ood")
    return PUBLISHED.get(system, {}).get(solver)


def reason(system: System, solver: str, is_blind: bool, n_steps: int) -> str:
    """Why a number of ours, after so many steps, may differ from the published one."""
    if solver in QUOTED:
        what = "a relative square error there, not comparable" if system.name == "gray_scott" else "other protocol"
        return f"quoted there from earlier work, {what}"
    why = []
    if is_blind:
        why.append("it is told no parameters; here only one frame is true")
    if solver in FINE_TUNED:
        why.append("there fine-tuned from published weights, here from scratch")
    if solver in STEPS:
        why.append(f"about {STEPS[solver][system.ndim - 1]:,} steps there, {n_steps:,} here")
    return "; ".join(why) or "there hours to days of training"
