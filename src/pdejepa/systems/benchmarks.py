"""The published benchmark: how many trajectories in which splits, apart from the equations.

Decided by the paper; `is_ours` marks splits that it does not have.  Beside them every system has extra splits of our
own, which are generated and judged only where they are named:

    broad_train, broad_valid, broad_test   initial states of a wider law (`System.broad`), parameters as in train
    valid_ood                              the law of `ood`, to choose settings by without looking at `ood`
"""

from __future__ import annotations

from dataclasses import replace

from pdejepa.systems.problem import Parameter
from pdejepa.systems.structure import Split

FORCED = (
    Split("train", 12_000, 1_200, "diffusivity in the training range"),
    Split("valid", 120, 12, "as train, other environments and waves"),
    Split("test", 120, 12, "as train, other environments and waves"),
    Split("ood", 120, 12, "diffusivity in [5, 10], beyond the training range", is_ood=True, is_ours=True),
)

SPLITS: dict[str, tuple[Split, ...]] = {
    "advection": (
        Split("train", 12_000, 1_200, "speed in the training range"),
        Split("valid", 120, 12, "as train, other speeds and waves"),
        Split("test", 120, 12, "as train, other speeds and waves"),
        Split("ood", 120, 12, "speed in [4, 5], beyond the training range", is_ood=True, is_ours=True),
    ),
    "wave_b": (
        Split("train", 12_000, 4, "all four boundary pairs"),
        Split("valid", 120, 4, "as train, other pulses"),
        Split("test", 120, 4, "as train, other pulses"),
    ),
    "combined": (
        Split("train", 12_000, 1_200, "all three strengths in the training range"),
        Split("valid", 120, 12, "as train, other environments and waves"),
        Split("test", 120, 12, "as train, other environments and waves"),
        Split("ood", 120, 12, "advection in [1.0682, 1.7581], the others as in train", is_ood=True),
    ),
    "vorticity": (
        Split("train", 12_000, 1_200, "viscosity in the training range"),
        Split("valid", 1_200, 120, "as train, other viscosities and flows"),
        Split("test", 1_200, 120, "as train, other viscosities and flows"),
        Split(
            "ood",
            120,
            12,
            "viscosity in [1e-5, 1e-4]; initial conditions of train",
            is_ood=True,
            initial_from="train",
        ),
        Split(
            "bridge",
            120,
            12,
            "viscosity in [1e-4, 1e-3]; initial conditions of train",
            is_ood=True,
            initial_from="train",
        ),
    ),
    "heterns": (
        Split("train", 15_000, 15, "five viscosities times three forcing frequencies"),
        Split("valid", 1_500, 15, "as train, other initial fields"),
        Split("test", 1_500, 15, "as train, other initial fields"),
        Split("ood_viscosity_interp", 900, 42, "viscosities between those of train", is_ood=True),
        Split("ood_viscosity_extrap", 510, 24, "viscosities in [2e-3, 9e-3]", is_ood=True),
        Split("ood_forcing", 90, 4, "unseen forcing frequencies at viscosity 1e-5", is_ood=True),
    ),
    "wave_2d": (
        Split("train", 12_000, 1_200, "pairs from the training grid"),
        Split("valid", 1_200, 120, "other pairs of the same grid"),
        Split("test", 1_200, 120, "other pairs of the same grid"),
        Split(
            "ood",
            120,
            12,
            "celerity in [500, 550], damping in [50, 60]; initial conditions of train",
            is_ood=True,
            initial_from="train",
        ),
    ),
    "gray_scott": (
        Split("train", 12_000, 1_200, "feed and kill in the training range"),
        Split("valid", 1_200, 120, "as train, other environments and seeds"),
        Split("test", 1_200, 120, "as train, other environments and seeds"),
        Split("ood", 120, 12, "feed in [.045, .047], kill in [.057, .059]", is_ood=True),
    ),
    "burgers": FORCED,
    "heat": FORCED,
}
LARGE = {"vorticity": (1_000, 60), "heterns": (1_000, 60), "wave_2d": (1_000, 60)}  # train and others, at size laptop
VALID_OOD = {  # environments and meaning where they are not the usual ones
    "heterns": (12, "viscosities between and beyond those of train, and unseen forcing frequencies, a third each"),
    "wave_2d": (12, "as ood, the pairs of its grid that ood leaves out, other bumps"),
}


def splits_of(name: str, parameters: tuple[Parameter, ...]) -> tuple[Split, ...]:
    """Those of the benchmark, or the usual ones; out of distribution where a parameter has a law for it."""
    if name in SPLITS:
        return _counted(name, SPLITS[name])
    usual = (
        Split("train", 12_000, 1_200, "parameters in the training ranges"),
        Split("valid", 120, 12, "as train, other environments and states"),
        Split("test", 120, 12, "as train, other environments and states"),
    )
    ood = Split("ood", 120, 12, "parameters outside the training ranges", is_ood=True)
    return (*usual, ood) if any(parameter.ood for parameter in parameters) else usual


def extra_splits_of(name: str, splits: tuple[Split, ...], has_broad: bool) -> tuple[Split, ...]:
    """Those that are made only where they are named; `broad` where the system has that law."""
    train = next((split for split in splits if split.name == "train"), splits[0])
    told = "other kinds of initial states, parameters as in train"
    sizes = {"broad_train": (train.n, train.n_environments), "broad_valid": (120, 120), "broad_test": (120, 120)}
    extra = [
        Split(split, n, min(n_environments, train.n_environments), told, is_ours=True, is_broad=True)
        for split, (n, n_environments) in sizes.items()
        if has_broad
    ]
    if any(split.is_ood for split in splits):
        n_environments, meaning = VALID_OOD.get(name, (120, "as ood, other environments and states"))
        extra.append(Split("valid_ood", 120, n_environments, meaning, is_ood=True, is_ours=True))
    return _counted(name, tuple(extra))


def _counted(name: str, splits: tuple[Split, ...]) -> tuple[Split, ...]:
    """The same with the numbers of the size `laptop` where the system is large."""
    if name not in LARGE:
        return splits
    train, others = LARGE[name]
    return tuple(replace(s, laptop=train if s.name in ("train", "broad_train") else others) for s in splits)
