"""The dataset card, `README.md` of a data set: what the numbers are, where they come from, how to load them.

The card is covered by the manifest, so it holds nothing that differs between two runs of the same plan:
seconds, devices and library versions stand in `generation.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pdejepa.core.tables import Code, Table
from pdejepa.core.text import human_bytes
from pdejepa.data.generate.layout import Plan
from pdejepa.data.generate.stats import CLIP, clipped
from pdejepa.systems import switch_values
from pdejepa.systems.problem import Parameter
from pdejepa.systems.structure import Split

Stats = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class DatasetCard:
    """Everything the text needs; `xi` maps a split to its parameters (n,P), `outcomes` to outcome counts."""

    plan: Plan
    xi: Mapping[str, np.ndarray]
    outcomes: Mapping[str, Mapping[str, int]]
    n_redrawn: int
    n_bytes: int
    stats: Stats | None

    def text(self) -> str:
        parts = (
            self._head(),
            self._splits(),
            self._parameters(),
            self._grid(),
            self._solver(),
            self._outcomes(),
            self._statistics(),
            self._loading(),
        )
        return "\n\n".join(parts) + "\n"

    def _head(self) -> str:
        system, config = self.plan.system, self.plan.config
        n = sum(self.plan.count(split) for split in self.plan.splits)
        return (
            f"# {system.title} ({config.size})\n\n"
            f"    {system.equation}\n\n"
            f"What one sees: {system.expect}.\n\n"
            f"![{system.title}: trajectory 0](picture.png)\n\n"
            f"{n:,} trajectories, {human_bytes(self.n_bytes)}, seed {config.seed}, in the HDF5 layout of The Well. "
            f"The same again: `pdejepa generate {system.name} --config config.json --out DIR`. "
            "`manifest.json` holds the hashes of all files."
        )

    def _splits(self) -> str:
        rows = [
            (
                Code(split.name),
                f"{self.plan.count(split):,}",
                f"{min(split.n_environments, self.plan.count(split)):,}",
                _kind(split),
                split.meaning,
            )
            for split in self.plan.splits
        ]
        note = (
            "An environment is one set of parameters; trajectory i belongs to environment i modulo the number "
            "of environments. No initial condition occurs twice with the same parameters."
        )
        head = ("split", "trajectories", "environments", "kind", "meaning")
        return f"## Splits\n\n{Table(head, rows).markdown()}\n\n{note}"

    def _parameters(self) -> str:
        parameters = self.plan.system.parameters
        rows = [
            (
                Code(p.name),
                p.symbol,
                p.unit,
                p.meaning,
                p.law,
                _interval(p.train),
                p.ood_text or "-",
                _interval(p.limits),
            )
            for p in parameters
        ]
        head = (
            "name",
            "symbol",
            "unit",
            "meaning",
            "law",
            "training range",
            "out of distribution",
            "physical limits",
        )
        found = f"Found in the files:\n\n{self._found(parameters)}"
        return f"## Parameters\n\n{Table(head, rows).markdown()}\n\n{found}{self._constants()}"

    def _found(self, parameters: Sequence[Parameter]) -> str:
        rows = [
            (Code(p.name), *(f"{xi[:, j].min():.6g} .. {xi[:, j].max():.6g}" for xi in self.xi.values()))
            for j, p in enumerate(parameters)
        ]
        return Table(("name", *self.xi), rows).markdown()

    def _constants(self) -> str:
        listed = ", ".join(f"{name} = {value:g}" for name, value in self.plan.system.constants.items())
        return f"\n\nConstants of the equation: {listed}." if listed else ""

    def _grid(self) -> str:
        system = self.plan.system
        lines = []
        for (name, nodes), is_periodic in zip(system.axes.items(), system.problem.periodic_axes, strict=True):
            ends = "periodic, end point left out" if is_periodic else "walls at both ends"
            lines.append(
                f"- `{name}`: {len(nodes)} points from {float(nodes[0]):.6g} to {float(nodes[-1]):.6g}, {ends}"
            )
        times = system.raw_times if self.plan.config.raw_frames else system.times
        which = "all frames of the solver" if self.plan.config.raw_frames else "the frames the models use"
        lines.append(f"- time: {len(times)} frames from {float(times[0]):.6g} to {float(times[-1]):.6g} ({which})")
        lines.append(
            f"- fields: {', '.join(f'`{name}`' for name in system.fields)}, float32, (trajectory, time, *grid)"
        )
        if self.plan.constant_fields:
            listed = ", ".join(f"`{name}`" for name in self.plan.constant_fields)
            lines.append(f"- constant in time: {listed}, (trajectory, *grid)")
        return "## Grid and frames\n\n" + "\n".join(lines)

    def _solver(self) -> str:
        system = self.plan.system
        settings = ", ".join(f"{name} = {value}" for name, value in switch_values(system).items())
        precision = str(system.dtype).removeprefix("torch.")
        text = (
            f"## Solver\n\nSettings: {settings or 'none'}. Precision: {precision}.\n\n"
            f"How stored values are checked: {system.reference.refined}; "
            f"relative L2 at most {system.reference.bound:g}."
        )
        return text + self._simulated_grid()

    def _simulated_grid(self) -> str:
        """Flows are simulated on a finer grid than they are stored on; `tiny` on a coarser one than the rest."""
        here, usual = (getattr(system, "solver_grid", None) for system in (self.plan.system, type(self.plan.system)()))
        if here is None:
            return ""
        text = f"\n\nSimulated on a grid of {here} points per axis."
        if here != usual:
            text += (
                f" **This is not the benchmark's grid of {usual}**: fine structures differ from the full-size "
                "data, so do not compare errors across sizes."
            )
        return text

    def _outcomes(self) -> str:
        labels = sorted({label for counts in self.outcomes.values() for label in counts})
        rows = [
            (Code(split), *(str(counts.get(label, 0)) for label in labels)) for split, counts in self.outcomes.items()
        ]
        text = f"## Outcomes of the solves\n\n{Table(('split', *labels), rows).markdown()}\n\n"
        if self.n_redrawn:
            return text + f"{self.n_redrawn} solves failed and were drawn again; `generation.json` lists them."
        return text + "No solve failed."

    def _statistics(self) -> str:
        if self.stats is None:
            return "## Statistics\n\nThe train split is not part of this data set, so there is no `stats.yaml`."
        rows = [
            (
                Code(name),
                *(f"{self.stats[kind][name]:.6g}" if name in self.stats[kind] else "-" for kind in self.stats),
            )
            for name in self.stats["mean"]
        ]
        text = f"## Statistics of train (`stats.yaml`)\n\n{Table(('field', *self.stats), rows).markdown()}"
        small = clipped(self.stats)
        if small:
            text += (
                f"\n\nThe official normalisers never divide by less than {CLIP:g}; with them "
                f"{', '.join(small)} would not be scaled to order one. Divide by the values above instead."
            )
        return text

    def _loading(self) -> str:
        split = self.plan.splits[0].name
        return (
            "## Loading\n\n```python\n"
            "from pdejepa.data.well.reader import Dataset\n\n"
            'data = Dataset.open(".")\n'
            f'trajectory = data.read("{split}", 0)   # .fields (T, C, *grid), .xi, .times, .axes\n'
            f'fields = data.fields("{split}")         # (n, T, C, *grid)\n'
            "```\n\nWith the official loader (`pip install the_well`):\n\n```python\n"
            "from the_well.data import WellDataset\n\n"
            f'data = WellDataset(path=".", well_split_name="{split}", n_steps_input=1, n_steps_output=1)\n'
            "```"
        )


def _kind(split: Split) -> str:
    kind = "out of distribution" if split.is_ood else "in distribution"
    return f"{kind}, ours" if split.is_ours else kind


def _interval(ends: tuple[float, float]) -> str:
    return f"[{ends[0]:g}, {ends[1]:g}]"
