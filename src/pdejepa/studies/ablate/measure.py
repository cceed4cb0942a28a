"""What is measured of a finished run, part by part; parts that are known already are not measured again.

    errors        relative L2 of the forecasts on test and all out-of-distribution splits, as `pdejepa evaluate` does
    geometry      latent against physical trajectories on valid        (`evaluate.geometry`)
    rollouts      four errors of the latent ODE, on the same splits    (`latent_rollouts`)
    reconstruct   the decoder of the side stage on the true q of test
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pdejepa.core.device import full_precision
from pdejepa.core.progress import progress
from pdejepa.core.weights import restore
from pdejepa.data.well.reader import Dataset
from pdejepa.evaluate import metrics
from pdejepa.evaluate.evaluations import make_record
from pdejepa.evaluate.geometry import Geometry, compare_geometry
from pdejepa.evaluate.protocol import evaluate, trajectory_counts
from pdejepa.evaluate.record import SplitErrors
from pdejepa.evaluate.truth import source_of
from pdejepa.forecast.forecaster import Forecaster, load
from pdejepa.method.run_config import RunConfig
from pdejepa.models.decoder import Decoder
from pdejepa.studies.ablate.ablation_record import Reconstruction, RunRecord
from pdejepa.studies.ablate.latent_rollouts import Rollouts, number, rollout_errors, summarise
from pdejepa.studies.ablate.reuse_stages import done
from pdejepa.studies.ablate.runs import Run
from pdejepa.training.checkpoint import FINAL, StageFolder

TOKENS = {"cpu": 32_768, "cuda": 262_144}  # encoded at once, about; a rollout of few rows leaves a GPU idle
DECODED = 16  # trajectories decoded at once
SOLVED = 240  # trajectories solved at once, about; whole chunks of the solver
PART_KEYS = ("errors", "geometry", "rollouts", "reconstruct")


class Measuring:
    """One run being measured, on n trajectories of each split (None: all)."""

    def __init__(self, folder: Path, config: RunConfig, n: int | None) -> None:
        self.folder, self.config, self.n = folder, config, n
        self.forecaster: Forecaster = load(folder, config.device)
        self.forecaster.takes_finer_steps = False  # only `physics` would: all runs are compared with the same steps
        self.model, self.system = self.forecaster.surrogate, self.forecaster.system

    def row(self, run: Run, known: RunRecord | None) -> RunRecord:
        """Everything that the record keeps of the run; parts of `known` that are of these very weights are kept."""
        row = self._plain(run)
        parts: dict[str, Any] = {}
        if known is not None and (known.weights_sha256, known.n) == (row.weights_sha256, row.n):
            parts = {key: found for key in PART_KEYS if (found := getattr(known, key))}
        if "reconstruct" in parts and parts["reconstruct"].weights_sha256 != self._side_hash():
            del parts["reconstruct"]
        measures: dict[str, Callable[[], Any]] = {
            "errors": self.errors,
            "geometry": self.geometry,
            "rollouts": self.rollouts,
            "reconstruct": self.reconstruct,
        }
        with torch.no_grad(), full_precision(self.forecaster.device):
            for part in PART_KEYS:
                if part in run.parts and part not in parts:
                    parts[part] = measures[part]()
        return dataclasses.replace(row, **parts)

    def _plain(self, run: Run) -> RunRecord:
        """What is known without measuring: provenance, sizes, steps."""
        field = self.config.model.field
        known = make_record(self.forecaster, {})
        return RunRecord(
            **{f.name: getattr(known, f.name) for f in dataclasses.fields(known)},
            n=self.n,
            changes=dict(run.changes),
            shared=run.shared,
            steps={stage: found["steps"] for stage in run.chain if (found := done(self.folder, stage))},
            parameters=sum(p.numel() for p in self.model.parameters()),
            integrator=field.integrator,
            n_substeps=field.n_substeps,
            anchor_weight=self.config.align.anchor_weight,
        )

    # ---- the parts -----------------------------------------------------------------------------------------------
    @property
    def splits(self) -> list[str]:
        """test and all out-of-distribution splits (of the data set, if there is one)."""
        names = [split.name for split in self.system.splits if split.name == "test" or split.is_ood]
        with self._data() as data:
            return [name for name in names if data is None or name in data.splits]

    def errors(self) -> dict[str, SplitErrors]:
        with self._data() as data:
            total = sum(trajectory_counts(self.forecaster, self.splits, data, self.n).values())
            with progress(total, f"{self.folder.name}: forecast errors") as bar:
                return evaluate(self.forecaster, self.splits, data, self.n, report=bar.advance)

    def geometry(self) -> Geometry:
        return compare_geometry((u, z, self.model.project(z)) for u, z, _ in self._latents("valid", "geometry"))

    def rollouts(self) -> dict[str, Rollouts]:
        found = {}
        for split in self.splits:
            parts = self._latents(split, f"rollouts of {split}")
            found[split] = summarise(
                rollout_errors(self.model, self.model.project(z), self.model.drive(xi)) for _, z, xi in parts
            )
        return found

    def reconstruct(self) -> Reconstruction:
        """e_rec: decoding the true q, over the frames that a forecast is judged on."""
        decoder, first = self._side_decoder(), self.model.history
        errors: dict[str, list[Tensor]] = {"rel_l2": [], "rel_l2_joint": []}
        for u, z, _ in self._latents("test", "reconstruction"):
            decoded = torch.cat([decoder(part) for part in self.model.project(z).split(DECODED)])
            guess, true = (self.model.denormalise(x) for x in (decoded, u))
            errors["rel_l2"].append(metrics.rel_l2(guess, true, first).cpu())
            errors["rel_l2_joint"].append(metrics.rel_l2_joint(guess, true, first).cpu())
        told = done(self.folder, "reconstruct") or {}
        return Reconstruction(
            **{name: number(torch.cat(values).nanmean()) for name, values in errors.items()},
            n=sum(len(values) for values in errors["rel_l2"]),
            steps=told.get("steps"),
            seconds=told.get("seconds"),
            weights_sha256=self._side_hash(),
        )

    def _side_hash(self) -> str | None:
        return (done(self.folder, "reconstruct") or {}).get("weights_sha256")

    def _side_decoder(self) -> Decoder:
        model, sizes = self.model, self.config.model
        n_channels, padding = len(self.system.fields), self.system.problem.padding
        decoder = Decoder(sizes.decoder, model.patches, sizes.encoder.width, n_channels, padding)
        stage = StageFolder(self.folder / "reconstruct")
        restore({"decoder": decoder}, stage.read(FINAL).weights, f"{self.folder}/reconstruct/{FINAL}")
        return decoder.to(self.forecaster.device).eval().requires_grad_(False)

    # ---- trajectories --------------------------------------------------------------------------------------------
    def _latents(self, split: str, label: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Normalised fields (b,T,C,*grid), z (b,T,N,D) and their xi (b,P) of a split, a few trajectories at a time."""
        tokens = TOKENS.get(self.forecaster.device.type, TOKENS["cpu"])
        size = max(1, tokens // (self.model.patches.n_tokens * len(self.system.times)))
        with self._data() as data:
            total = trajectory_counts(self.forecaster, [split], data, self.n)[split]
            with progress(total, f"{self.folder.name}: {label}") as bar:
                for block in source_of(self.forecaster, data).blocks(split, total, SOLVED, self.forecaster.device):
                    for u, rows in zip(block.fields.split(size), block.xi.split(size), strict=True):
                        divisor, own = self.model.sized(u, rows)
                        normal = self.model.normalise(u / divisor)
                        yield normal, self.model.encoder.frames(normal).float(), own
                        bar.advance(len(u))

    @contextlib.contextmanager
    def _data(self) -> Iterator[Dataset | None]:
        """The data set of the training, if it had one."""
        if not self.config.data:
            yield None
            return
        with Dataset.open(self.config.data) as data:
            yield data
