"""Make one shard of a data set: solve, write, record.  The same on this machine and on a worker of a cluster."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pdejepa.core.device import pick_device
from pdejepa.data.generate.finish import read_manifest
from pdejepa.data.generate.journal import Journal, PieceRecord, describe_maker
from pdejepa.data.generate.layout import GenerateConfig, Piece, Plan
from pdejepa.data.well.writer import write_shard

Report = Callable[[int], None]


def make_shard(plan: Plan, piece: Piece, root: Path, device: torch.device, report: Report | None = None) -> list[str]:
    """Write the shard, then its record; return what is to be said of it."""
    journal, path = Journal(root), root / piece.path
    before = journal.read(piece)
    known = before.entry if before else read_manifest(root).files.get(piece.path)
    begun = time.monotonic()
    write_shard(plan, piece, path, device, report)
    record = PieceRecord.of_file(path, piece, describe_maker(device, time.monotonic() - begun))
    journal.write(piece, record)
    news = []
    if record.redrawn:
        news.append(f"{len(record.redrawn)} of {piece.n} solves of {piece.label} failed and were drawn again.")
    if known is not None and known != record.entry:
        news.append(
            f"Shard {piece.label} has other bytes than the lost one: it was made on another device "
            "or with another version of pdejepa or its libraries."
        )
    return news


def make_on_worker(config: GenerateConfig, number: int) -> list[str]:
    """The task of a worker: piece `number` of the plan, in the folder that all machines share."""
    plan = Plan.of(config)
    return make_shard(plan, plan.pieces[number], Path(config.out), pick_device(config.device))


def jobs(plan: Plan, needed: list[Piece]) -> list[tuple[GenerateConfig, int]]:
    """The arguments of `make_on_worker` for every piece."""
    config = dataclasses.replace(plan.config, out=str(Path(plan.config.out).resolve()))
    numbers = {piece: number for number, piece in enumerate(plan.pieces)}
    return [(config, numbers[piece]) for piece in needed]
