"""One training on one thread of a laptop, counted in steps: what does a lever give at an equal cost?

    prepare    pretrain and align, by the package's own stages
    dynamics   the latent field, one frame (or `--unroll`) from true latents
    decode     the decoder, on rolled-out latents of a thousand trajectories
    rollouts   field and decoder together, on whole rollouts, by the error of the fields

Batches are drawn by (seed, phase, step) and every phase saves itself, so that a killed trial continues to the same
weights.  A finished phase is kept under a hash of all settings it depends on: trials that differ only later share it.

    python laptop_trial.py NAME [--option VALUE ...]      python laptop_trial.py --table FILE... [--into LAB.md]

Letters: B rows, T frames, N tokens, D latent width.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pdejepa.stages.config import TrainConfig
from pdejepa.stages.data import load_data
from pdejepa.stages.operations import counted
from pdejepa.stages.optim import Optimiser, build_optimiser
from pdejepa.stages.settings import Budget, OptimiserConfig
from pdejepa.stages.train import train_stages
from pdejepa.stages.weights import gather, read_weights, restore, write_weights
from torch import Tensor, nn

from pdejepa import recipes
from pdejepa.core.files import write_json
from pdejepa.core.seeds import derive_seed
from pdejepa.evaluate.metrics import rel_l2, rel_l2_joint
from pdejepa.models.amplitude import at_unit_amplitude
from pdejepa.models.blocks import compile_blocks
from pdejepa.models.condition import Drive

CPU = torch.device("cpu")
N_JUDGED = 120  # trajectories of each split
SPLITS = {"valid": ("valid", 0), "valid_ood": ("ood", 1), "test": ("test", 0), "ood": ("ood", 0)}  # and data seeds
N_ROLLED = 1000  # trajectories that the decoder learns from
SAVE_SECONDS = 120
WARMUP, FINAL = 0.05, 0.02  # share of the steps, and the last learning rate as a factor
WIDTHS = (96, 64, 48, 32, 24)  # of the decoder, coarsest first
DEPENDS = {  # what each phase depends on, besides what those before it do
    "prepare": ("pde", "n", "patch", "width", "encoder_depth", "pretrain", "align", "seed"),
    "dynamics": ("depth", "method", "substeps", "dynamics", "unroll", "batch", "lr", "plain", "compile"),
    "decode": ("decode",),
    "rollouts": ("rollouts", "rollout_batch", "rollout_lr", "average", "anchor"),
}


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("name", nargs="?", help="of the trial: its results are RUNS/NAME/trial.json")
    add("--runs", type=Path, default=Path("runs/laptop"), help="folder of all trials and of the phases they share")
    add("--table", type=Path, nargs="+", help="train nothing; print a table of these trial.json files")
    add("--into", type=Path, help="with --table: put it between the marks of this document instead")
    add("--pde", default="combined")
    add("--seed", type=int, default=0, help="of weights and batches; data are always the same")
    add("--n", type=int, default=2000, help="trajectories of train")
    add("--patch", type=int, default=8)
    add("--width", type=int, default=128, help="of latents and field")
    add("--depth", type=int, default=4, help="of the field")
    add("--encoder-depth", type=int, default=3)
    add("--pretrain", type=int, default=60, help="steps, as of the other phases")
    add("--align", type=int, default=4)
    add("--dynamics", type=int, default=900)
    add("--decode", type=int, default=600)
    add("--rollouts", type=int, default=250)
    add("--batch", type=int, default=64, help="of dynamics")
    add("--unroll", type=int, default=1, help="frames of a sample in dynamics; ab2 needs 2 to meet itself")
    add("--rollout-batch", type=int, default=8)
    add("--lr", type=float, default=2e-3, help="of dynamics and decode")
    add("--rollout-lr", type=float, default=3e-4)
    add("--average", type=float, default=0.98, help="weights averaged over rollout steps with this memory")
    add("--anchor", type=float, default=0.0, help="weight of the relative error of latents in the loss of rollouts")
    add("--method", choices=("euler", "rk2", "rk4", "ab2"), default="euler")
    add("--substeps", type=int, default=2, help="steps per frame")
    add("--plain", type=int, default=1, help="attention by products and softmax after prepare, 0: PyTorch's own")
    add("--compile", type=int, default=0, help="compile the blocks of the field; at ten minutes it costs what it gains")
    return parser


# ---- phases ------------------------------------------------------------------------------------------------------
@dataclass
class Phase:
    """A loop of training; `loss` is of the batch that the generator draws."""

    name: str
    steps: int
    lr: float
    decay: float  # share of the steps at the end in which the learning rate falls
    memory: float  # of the averaged weights
    modules: dict[str, nn.Module]
    loss: Callable[[torch.Generator], Tensor]

    def optimiser(self) -> Optimiser:
        return build_optimiser(self.modules, OptimiserConfig(kind="muon", lr=self.lr, muon_lr=self.lr))

    def factor(self, step: int) -> float:
        """The learning rate rises, stays and falls linearly."""
        share = step / self.steps
        falling = FINAL + (1 - FINAL) * (1 - share) / self.decay
        return min(1.0, share / WARMUP + 0.01) * min(1.0, falling)

    def operations(self) -> float:
        """Multiply-adds of a step, optimiser included; one is taken with a learning rate of zero."""
        probe = self.optimiser()
        probe.set_factor(0.0)
        with torch.no_grad():
            self.loss(torch.Generator().manual_seed(0))  # what is made once, latents and rollouts, is not of a step

        def step() -> None:
            self.loss(torch.Generator().manual_seed(0)).backward()
            probe.step()

        found = counted(step) / 2
        for p in probe.parameters.values():
            p.grad = None
        return found


def train(phase: Phase, folder: Path, seed: int) -> dict[str, float]:
    """Take (or continue, or load) the steps of a phase; the model is left with the averaged weights."""
    done, state, result = folder / "done.json", folder / "state.safetensors", folder / "weights.safetensors"
    if done.exists():
        restore(phase.modules, read_weights(result), str(result))
        return dict(json.loads(done.read_text()))
    begin, cpu = time.monotonic(), time.process_time()
    optimiser = phase.optimiser()
    weights: dict[str, Tensor] = {name: p.detach() for name, p in optimiser.parameters.items()}
    average = {name: p.clone() for name, p in weights.items()}
    position = torch.zeros(4, dtype=torch.float64)  # steps, seconds, seconds of the processor, multiply-adds of a step
    parts = {"now": weights, "average": average, "optimiser": optimiser.tensors(), "at": {"position": position}}
    tensors = {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}
    if state.exists():
        for name, value in read_weights(state).items():
            tensors[name].copy_(value)
    else:
        position[3] = phase.operations()
    before, saved, shown = position.clone(), time.monotonic(), 0.0
    for step in range(int(position[0]), phase.steps):
        optimiser.set_factor(phase.factor(step))
        for p in optimiser.parameters.values():
            p.grad = None
        loss = phase.loss(torch.Generator().manual_seed(derive_seed(seed, phase.name, step)))
        loss.backward()
        nn.utils.clip_grad_norm_(optimiser.parameters.values(), 1.0)
        optimiser.step()
        share = 1 - min(phase.memory, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(average.values()), list(weights.values()), share)
        now = time.monotonic()
        position[0] = step + 1
        position[1:3] = before[1:3] + torch.tensor([now - begin, time.process_time() - cpu], dtype=torch.float64)
        if now > saved + SAVE_SECONDS:
            write_weights(state, tensors)
            saved = now
        shown = loss.item() if not shown else 0.98 * shown + 0.02 * loss.item()
        if (step + 1) % 50 == 0:
            print(f"{phase.name} {step + 1}/{phase.steps}: loss {shown:.4g}, {float(position[1]):.0f} s", flush=True)
    for name, value in average.items():
        weights[name].copy_(value)
    write_weights(result, gather(phase.modules))
    names = ("steps", "seconds", "cpu_seconds", "multiply_adds")
    report = dict(zip(names, position.tolist(), strict=True), loss=shown)
    report["multiply_adds"] *= phase.steps
    write_json(done, report)
    state.unlink(missing_ok=True)
    return report


def plain_attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Faster than PyTorch's own in bfloat16, forward and back, on the short sequences of one frame."""
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(-1).to(v.dtype) @ v


# ---- one trial ---------------------------------------------------------------------------------------------------
class Trial:
    """Data, model and losses of one trial."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        config = _config(args)
        begin, cpu = time.monotonic(), time.process_time()
        self.data = load_data(config, CPU, show=False)
        if self.data.system.structure.time_order == 2:
            raise SystemExit("systems of second order need a start-up head, which this script does not train")
        self.is_unit = config.amplitude == "unit"
        trained = train_stages(config, self.folder("prepare"), say=print, data=self.data, keep="files")
        self.model = trained.model.requires_grad_(False)
        seconds = {name: report["seconds"] for name, report in trained.reports.items()}
        self.prepared = {"seconds": sum(seconds.values()), **seconds}
        print(f"prepared: {time.monotonic() - begin:.0f} s, {time.process_time() - cpu:.0f} s of the processor")
        self.model.field.requires_grad_(True)
        self.model.decoder.requires_grad_(True)
        if args.plain:
            nn.functional.scaled_dot_product_attention = plain_attention
        if args.compile:
            compile_blocks(self.model.field)

    def folder(self, phase: str) -> Path:
        """Where a phase is kept: a name that says all it depends on."""
        names = list(DEPENDS)
        before = [key for name in names[: names.index(phase) + 1] for key in DEPENDS[name]]
        told = json.dumps({key: getattr(self.args, key) for key in before})
        return self.args.runs / "phases" / f"{phase}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"

    def run(self) -> dict[str, Any]:
        args, model = self.args, self.model
        field, both = {"field": model.field}, {"field": model.field, "decoder": model.decoder}
        decoder = {"decoder": model.decoder}
        phases = {"prepare": self.prepared}
        loops = (
            Phase("dynamics", args.dynamics, args.lr, 0.6, 0.995, field, self.step_loss),
            Phase("decode", args.decode, args.lr, 0.6, 0.99, decoder, self.decoder_loss),
            Phase("rollouts", args.rollouts, args.rollout_lr, 0.9, args.average, both, self.rollout_loss),
        )
        judged: dict[str, Any] = {}
        for loop in loops:
            phases[loop.name] = train(loop, self.folder(loop.name), args.seed)
            if loop.name != "dynamics":
                judged["four_stages" if loop.name == "decode" else "rollouts"] = self.judge(loop.name)
        sizes = {name: sum(p.numel() for p in module.parameters()) for name, module in both.items()}
        settings = {key: getattr(args, key) for keys in DEPENDS.values() for key in keys}
        return {"name": args.name, "settings": settings, "weights": sizes, "phases": phases, "errors": judged}

    # ---- latents and their motion --------------------------------------------------------------------------------
    @torch.no_grad()
    def encode(self, u: Tensor) -> Tensor:
        return torch.cat([self.model.encode(part) for part in u.split(64)])  # (B,T,N,D)

    @cached_property
    def q(self) -> Tensor:
        return self.encode(self.data.fields["train"])

    @cached_property
    def q0(self) -> Tensor:
        return self.encode(self.data.fields["train"][:, :1])[:, 0]

    @cached_property
    def change(self) -> Tensor:
        """The mean square change of latents in one frame."""
        return self.q.diff(dim=1).square().mean()

    def advance(self, q: Tensor, drive: Drive, n_frames: int, fractions: Tensor | None = None) -> Tensor:
        """The frames after q (B,N,D), (B,n_frames,N,D) float32."""
        with torch.autocast("cpu", torch.bfloat16):
            if self.args.method == "ab2":
                return self._adams_bashforth(q, drive, n_frames, fractions)
            return self.model.advance(q, torch.zeros(len(q)), drive, n_frames, fractions).float()

    def _adams_bashforth(self, q: Tensor, drive: Drive, n_frames: int, fractions: Tensor | None) -> Tensor:
        """q(s+h) = q + h (3 F(q_s) - F(q_{s-h})) / 2: order two at one call a step; the first step is Euler's.

        Each row's steps are equally long; a step of 0, with which rows wait for others, is not remembered.
        """
        n, before, frames = self.args.substeps, None, []
        steps = (torch.full((len(q), n), 1 / n) if fractions is None else fractions)[:, :, None, None].unbind(1)
        for _ in range(n_frames):
            for h in steps:
                now = self.model.field(q, torch.zeros(len(q)), drive).float()
                q = q + h * (now if before is None else 1.5 * now - 0.5 * before)
                before = now if before is None or fractions is None else now.where(h > 0, before)
            frames.append(q)
        return torch.stack(frames, 1)

    # ---- losses --------------------------------------------------------------------------------------------------
    def step_loss(self, draw: torch.Generator) -> Tensor:
        """Mean square error of the next frames, by the mean square change of one."""
        batch, k = self.args.batch, self.args.unroll
        rows = torch.randint(len(self.q), (batch,), generator=draw)
        t = torch.randint(self.q.shape[1] - k, (batch,), generator=draw)
        target = self.q[rows[:, None], t[:, None] + torch.arange(1, k + 1)]  # (B,k,N,D)
        new = self.advance(self.q[rows, t], self.model.drive(self.data.xi["train"][rows]), k)
        return (new - target).square().mean() / self.change

    @cached_property
    def rolled(self) -> tuple[Tensor, Tensor]:
        """Some trajectories of train, and their rollouts (n,T,N,D) by the field as it is."""
        draw = torch.Generator().manual_seed(derive_seed(self.args.seed, "rolled"))
        rows = torch.randperm(len(self.q0), generator=draw)[:N_ROLLED]
        return rows, torch.cat([self.rollout(self.q0[part], self.data.xi["train"][part]) for part in rows.split(125)])

    @torch.no_grad()
    def rollout(self, q0: Tensor, xi: Tensor, is_finer: bool = False) -> Tensor:
        fractions = self.model.finer_steps(xi) if is_finer else None
        new = self.advance(q0, self.model.drive(xi), self.data.n_frames - 1, fractions)
        return torch.cat((q0[:, None], new), 1)

    def decoder_loss(self, draw: torch.Generator) -> Tensor:
        """Relative L2 error of 32 single frames."""
        rows, q = self.rolled
        r = torch.randint(len(rows), (32,), generator=draw)
        t = torch.randint(q.shape[1], (32,), generator=draw)
        out, u = self.model.decode(q[r, t][:, None])[:, 0], self.data.fields["train"][rows[r], t]
        square = (out - u).square().flatten(1).sum(1) / u.square().flatten(1).sum(1).clamp(min=1e-4)
        return square.sqrt().mean()

    def rollout_loss(self, draw: torch.Generator) -> Tensor:
        """Relative L2 error of whole trajectories, all frames but the first; plus, with an anchor, that of latents."""
        rows = torch.randint(len(self.q0), (self.args.rollout_batch,), generator=draw)
        u = self.data.fields["train"][rows][:, 1:]
        drive = self.model.drive(self.data.xi["train"][rows])
        q = self.advance(self.q0[rows], drive, u.shape[1])
        loss = _relative(self.model.decode(q), u)
        return loss + self.args.anchor * _relative(q, self.q[rows, 1:]) if self.args.anchor else loss

    # ---- judging -------------------------------------------------------------------------------------------------
    @cached_property
    def judged(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Normalised fields and parameters of all splits; `valid` and `valid_ood` may select, the others may not."""
        found = {}
        for name, (split, seed) in SPLITS.items():
            made = self.data.system.generate(split, N_JUDGED, CPU, seed=seed)
            fields, xi = made.fields, made.xi
            if self.is_unit:
                size, xi = at_unit_amplitude(self.data.system, fields, xi)
                fields = fields / size
            found[name] = (self.model.normalise(fields), xi)
        return found

    @torch.no_grad()
    def judge(self, phase: str) -> dict[str, dict[str, float]]:
        """Mean errors of the rollouts of each split, of fields and, relative to their size, of latents."""
        path = self.folder(phase) / "errors.json"
        if path.exists():
            return dict(json.loads(path.read_text()))
        found = {}
        for name, (fields, xi) in self.judged.items():
            q = self.encode(fields)
            own = torch.cat([self.rollout(q[i : i + 60, 0], xi[i : i + 60], True) for i in range(0, len(q), 60)])
            out, u = self.model.denormalise(self.model.decode(own)), self.model.denormalise(fields)
            latent = (own - q)[:, 1:].square().sum() / q[:, 1:].square().sum()
            values = {"rel_l2": rel_l2(out, u), "joint": rel_l2_joint(out, u), "latent": latent.sqrt()}
            found[name] = {key: float(value.mean().nan_to_num(9.99, 9.99)) for key, value in values.items()}
            told = ", ".join(f"{key} {value:.4f}" for key, value in found[name].items())
            print(f"{phase} {name}: {told}", flush=True)
        write_json(path, found)
        return found


def _relative(out: Tensor, truth: Tensor) -> Tensor:
    """Relative L2 error of each row, then their mean."""
    return ((out - truth).square().flatten(1).sum(1) / truth.square().flatten(1).sum(1)).sqrt().mean()


def _config(args: argparse.Namespace) -> TrainConfig:
    """The tiny recipe with networks and steps of this trial; nothing after align is trained by it."""
    config = recipes.get(args.pde, "tiny")
    n_scales, sizes = int(math.log2(args.patch)), config.model
    small = {"width": 128, "depth": 2, "heads": 4}
    method = "euler" if args.method == "ab2" else args.method
    shape = {"width": args.width, "depth": args.depth, "heads": 4, "integrator": method, "n_substeps": args.substeps}
    model = replace(
        sizes,
        encoder=replace(sizes.encoder, patch=args.patch, width=args.width, depth=args.encoder_depth, heads=4),
        jepa_predictor=replace(sizes.jepa_predictor, **small),
        projector=replace(sizes.projector, hidden=256),
        causal_predictor=replace(sizes.causal_predictor, **small),
        field=replace(sizes.field, **shape),
        decoder=replace(sizes.decoder, widths=WIDTHS[: n_scales + 1], scales=(2,) * n_scales),
    )
    steps = {
        name: replace(stage, training=replace(stage.training, budget=Budget(steps=getattr(args, name))))
        for name, stage in (("pretrain", config.pretrain), ("align", config.align))
    }
    return replace(
        config,
        **steps,  # type: ignore[arg-type]
        model=model,
        stages=("pretrain", "align"),
        counts={"train": args.n, "valid": N_JUDGED},
        size="paper",
        switches={},
        seed=args.seed,
        amplitude=recipes.get(args.pde, "fast").amplitude,
        latents="on_the_fly",  # a few steps of align need few of them
        device="cpu",
    )


# ---- the table ---------------------------------------------------------------------------------------------------
def table(paths: list[Path]) -> str:
    """One line for each trial: how it differs from the first of its system, its cost, and its errors in percent."""
    trials = [json.loads(path.read_text()) for path in paths]
    lines = [
        "| trial | differs by | CPU minutes | Tmac | four stages: valid / valid_ood | rollouts: valid / valid_ood "
        "| latent error | test / ood |",
        "|---|---|---|---|---|---|---|---|",
    ]
    bases: dict[str, dict[str, Any]] = {}
    for trial in trials:
        settings, errors, phases = trial["settings"], trial["errors"], trial["phases"]
        base = bases.setdefault(settings["pde"], settings)
        told = ", ".join(f"{key} {value}" for key, value in settings.items() if value != base.get(key, 0.0))
        minutes = sum(phase.get("cpu_seconds", phase["seconds"]) for phase in phases.values()) / 60
        operations = sum(phase.get("multiply_adds", 0.0) for phase in phases.values()) / 1e12
        key = "joint" if settings["pde"] == "gray_scott" else "rel_l2"
        pair = lambda when, *names: " / ".join(f"{100 * errors[when][name][key]:.2f}" for name in names)  # noqa: E731,B023
        cells = (
            trial["name"],
            told or f"base of {settings['pde']}",
            f"{minutes:.1f}",
            f"{operations:.1f}",
            pair("four_stages", "valid", "valid_ood"),
            f"**{pair('rollouts', 'valid', 'valid_ood')}**",
            f"{errors['four_stages']['valid']['latent']:.3f} -> {errors['rollouts']['valid']['latent']:.3f}",
            pair("rollouts", "test", "ood"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    args = options().parse_args()
    if args.table:
        text, begin, end = table(args.table), "<!-- table -->\n", "\n<!-- end -->"
        if not args.into:
            print(text)
            return
        head, rest = args.into.read_text().split(begin)
        args.into.write_text(head + begin + text + end + rest.split(end, 1)[1])
        return
    if not args.name:
        raise SystemExit("a trial needs a name")
    torch.set_num_threads(1)
    result = Trial(args).run()
    result["torch"] = torch.__version__
    write_json(args.runs / args.name / "trial.json", result)


if __name__ == "__main__":
    main()
