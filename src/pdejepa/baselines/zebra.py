"""Zebra (Serrano et al., 2024): frames become words of a small vocabulary, and a language model goes on with the text.

    tokenise   z = E(u_t) at every site;  residual quantisation  z ~ e_{k1} + e_{k2},  both codes from one book
               loss = |D(z_q) - u| / |u| + 0.25 commitment, the book a moving average
    language   <bos> <bot> context trajectory <eot> <bot> target trajectory <eot> <eos>,  cross-entropy of the next word
               order inside a trajectory: frame, site, code

A forecast is sampled: the prompt ends with the first frame, the words after it are drawn at temperature 0.1 with the
special words forbidden, and decoded frame by frame.  It is another one for other random numbers.

The quantiser is `ResidualVQ` of the package vector-quantize-pytorch (extra `zebra`).  It draws random numbers by itself
(codes are sampled in training), so a step seeds PyTorch's global generator from its batch, and gives it back after.

Ours differs: widths of residual blocks are not published and were chosen by the published total sizes; on planes the
two published tokenisers are mixed (two shared books of 2048 codes everywhere; two halvings from 128 channels for grids
of 32 points, three from 64 above); gradients are clipped at 1; a frame that is almost zero counts as a twentieth of the
usual size when errors are divided by it; codes that fall out of use are replaced by latents of the batch; planes above
64 points are coarsened to 64, which has 8 x 8 sites, so that two trajectories fit into 8192 words; length and batch of
the language stage are ours.  `fast` has rates three times the published 1e-4, because few steps must go far, and
smaller batches of text, so that there are steps at all.
Letters: B rows, T frames, N sites, Q codes per site, V vocabulary, C channels, *grid spatial axes.
"""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from pdejepa.baselines.baseline import AT_REST, BUDGETS, Baseline, Recipe, StageRecipe, Window, mean_frame_error
from pdejepa.baselines.blocks.autoencoder import ResBlock, Up, conv, in_parts, working_grid
from pdejepa.baselines.blocks.language_model import LanguageModel
from pdejepa.baselines.task import Task
from pdejepa.core.errors import ConfigError, ResourceError
from pdejepa.forecast.interface import Card, State
from pdejepa.systems.problem import Padding
from pdejepa.training.settings import Budget, OptimiserConfig, ScheduleConfig, StageTraining
from pdejepa.training.stage import Batch

N_SPECIAL = 8  # of which four are used
BOS, BOT, EOT, EOS = range(4)  # counted from the end of the codes
RES_KERNELS = (3, 1)
OUTER_KERNEL = 5
COMMITMENT = 0.25
MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class ZebraConfig:
    widths: tuple[int, ...] = (64, 128, 256, 256, 256)  # of the full grid, and after every halving
    groups: int = 8
    code: int = 64
    n_codes: int = 256
    n_books: int = 2
    code_temperature: float = 0.1  # at which codes are sampled in training
    dead_below: float = 0.1  # a code that is used less than this per step is replaced
    largest_grid: int = 256
    width: int = 256
    depth: int = 8
    heads: int = 8
    hidden: int = 1024
    temperature: float = 0.1  # of forecasts


class Quantiser(nn.Module):
    """Latents (n,N,D) <-> codes (n,N,Q).  The shared book is saved once."""

    def __init__(self, config: ZebraConfig) -> None:
        super().__init__()
        self.vq = residual_vq()(
            dim=config.code,
            num_quantizers=config.n_books,
            codebook_size=config.n_codes,
            shared_codebook=True,
            stochastic_sample_codes=True,
            sample_codebook_temp=config.code_temperature,
            threshold_ema_dead_code=config.dead_below,
        )
        self.copies = tuple(f"vq.layers.{number}." for number in range(1, config.n_books))
        self.register_state_dict_post_hook(_drop_copies)
        self.register_load_state_dict_pre_hook(_add_copies)

    def learn(self, z: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Quantised latents that let gradients pass, and the commitment loss; moves the book."""
        self.vq.train()
        with torch.random.fork_rng(devices=[z.device] if z.is_cuda else []):
            torch.manual_seed(seed)
            quantised, _, losses = self.vq(z)
        return quantised, losses.sum()

    def codes(self, z: Tensor) -> Tensor:
        """Nearest to z, then nearest to what is left; the package would look at values, which a recording must not."""
        vq: Any = self.vq
        found, left = [], z
        for book in vq.codebooks:  # (V,D)
            found.append((book.square().sum(1) - 2 * left @ book.T).argmin(-1))
            left = left - book[found[-1]]
        return torch.stack(found, -1)

    def forward(self, z: Tensor) -> Tensor:
        """Quantised latents without random numbers, and without moving the book."""
        return self.latents(self.codes(z))

    def latents(self, codes: Tensor) -> Tensor:
        vq: Any = self.vq
        return vq.get_output_from_indices(codes)


def residual_vq() -> type[nn.Module]:
    try:
        made: type[nn.Module] = importlib.import_module(Zebra.card.package).ResidualVQ
    except ImportError as error:
        raise ResourceError(
            "Zebra needs the package vector-quantize-pytorch, which is not installed. "
            'Install it with: pip install "pdejepa[zebra]"'
        ) from error
    return made


def _drop_copies(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    assert isinstance(module, Quantiser)
    for key in [key for key in state if key.startswith(tuple(prefix + copy for copy in module.copies))]:
        del state[key]


def _add_copies(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    assert isinstance(module, Quantiser)
    first = f"{prefix}vq.layers.0."
    own = {key.removeprefix(first): value for key, value in state.items() if key.startswith(first)}
    state.update({prefix + copy + key: value for copy in module.copies for key, value in own.items()})


def encoder(ndim: int, n_in: int, config: ZebraConfig, padding: Padding) -> nn.Sequential:
    """(n,C,*grid) -> (n,D,*sites)."""
    first, last = config.widths[0], config.widths[-1]

    def block(width: int) -> nn.Module:
        return ResBlock(ndim, width, width, config.groups, padding, RES_KERNELS)

    layers: list[nn.Module] = [conv(ndim, n_in, first, OUTER_KERNEL, padding), block(first)]
    for a, b in pairwise(config.widths):
        layers += [conv(ndim, a, b, 4, padding, stride=2), block(b)]
    return nn.Sequential(*layers, block(last), block(last), conv(ndim, last, config.code, 1))


def decoder(ndim: int, n_out: int, config: ZebraConfig, padding: Padding) -> nn.Sequential:
    """(n,D,*sites) -> (n,C,*grid), the encoder mirrored."""
    first, last = config.widths[0], config.widths[-1]

    def block(width: int) -> nn.Module:
        return ResBlock(ndim, width, width, config.groups, padding, RES_KERNELS)

    layers: list[nn.Module] = [conv(ndim, config.code, last, 1), block(last), block(last)]
    for b, a in pairwise(reversed(config.widths)):
        layers += [block(b), Up(ndim, b, a, padding)]
    layers += [block(first), nn.GroupNorm(config.groups, first), nn.SiLU()]
    return nn.Sequential(*layers, conv(ndim, first, n_out, OUTER_KERNEL, padding))


class Zebra(Baseline):
    card = Card(
        name="zebra",
        title="Zebra",
        paper="Serrano et al., Zebra: In-Context Generative Pretraining for Solving Parametric PDEs, 2024",
        needs=frozenset({"support"}),
        adapts="encode",
        stages=("tokenise", "language"),
        is_stochastic=True,
        has_encoder=True,
        package="vector_quantize_pytorch",
        unrecorded=("tokenise",),  # the quantiser draws random numbers and moves its book in the middle of a step
    )

    def __init__(self, config: ZebraConfig, task: Task) -> None:
        super().__init__(config, task)
        grid, self.lift = working_grid(task, config.largest_grid)
        self.grid = grid
        factor = 2 ** (len(config.widths) - 1)
        if any(n % factor for n in grid):
            raise ConfigError(f"Zebra with {len(config.widths) - 1} halvings needs multiples of {factor}, got {grid}.")
        self.sites = tuple(n // factor for n in grid)
        self.n_words = prod(self.sites) * config.n_books  # of a frame
        self.encoder = encoder(task.ndim, task.n_channels, config, task.padding)
        self.quantiser = Quantiser(config)
        self.decoder = decoder(task.ndim, task.n_channels, config, task.padding)
        self.language = LanguageModel(
            config.n_codes + N_SPECIAL, config.width, config.depth, config.heads, config.hidden
        )

    @classmethod
    def make_recipe(cls, name: str, task: Task) -> Recipe:
        model = ZebraConfig()
        if task.ndim == 2:
            width = 512 if task.problem.name == "wave_2d" else 384
            widths = (128, 256, 512) if min(task.grid) <= 32 else (64, 128, 256, 512)
            model = ZebraConfig(widths, 16, code=16, n_codes=2048, largest_grid=64, width=width, hidden=4 * width)
        is_tiny = name == "tiny"
        if is_tiny:
            shape = {"largest_grid": 16, "width": 16, "depth": 1, "heads": 2, "hidden": 32}
            model = ZebraConfig((8,) * 4, 2, code=4, n_codes=16, **shape)
        rate, warmup = (3e-4, 0.05) if name == "fast" else (1e-4, 0.0)
        tokenise = StageTraining(
            budget=Budget(steps=300_000) if name == "paper" else BUDGETS[name](0),
            batch=64 if not is_tiny else 16,
            optimiser=OptimiserConfig(lr=rate, weight_decay=1e-4, clip=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=warmup),
            n_scores=5,
        )
        language = StageTraining(
            budget=BUDGETS[name](100),
            batch={"paper": 32, "fast": 16 if task.ndim == 1 else 8, "tiny": 4}[name],
            optimiser=OptimiserConfig(lr=rate, weight_decay=1e-4, clip=1.0),
            schedule=ScheduleConfig(kind="cosine", warmup=warmup),
            n_scores=1,  # at the end: trials of learning rates are told apart by it
            select="last",
        )
        share = 1.0 if task.ndim == 1 else 2.0  # texts of planes are long
        stages = (StageRecipe("tokenise", tokenise), StageRecipe("language", language, share, precision="bf16"))
        return Recipe(model, stages)

    @classmethod
    def laptop(cls, model: ZebraConfig, task: Task) -> ZebraConfig:
        if task.ndim == 1:
            return dataclasses.replace(model, widths=(32, 64, 128, 128, 128), width=48, hidden=192)
        widths = tuple(width // 4 for width in model.widths)
        return dataclasses.replace(model, widths=widths, width=48, depth=2, hidden=192)

    # ---- training ----------------------------------------------------------------------------------------------
    def trained(self, stage: str) -> dict[str, nn.Module]:
        if stage == "tokenise":
            return {"encoder": self.encoder, "decoder": self.decoder}
        return {"language": self.language}

    def window(self, stage: str, share: float) -> Window:
        return Window(1) if stage == "tokenise" else Window(0, n_support=1)

    def draws(self, stage: str, batch: Batch, generator: torch.Generator) -> Batch:
        """The seed of a step, on the CPU, where it is needed."""
        return {"seed": torch.tensor(generator.initial_seed() & MAX_SEED)} if stage == "tokenise" else {}

    def loss(self, stage: str, batch: Batch) -> dict[str, Tensor]:
        if stage == "language":
            return self._language_loss(batch)
        u = self.lift(batch["u"])
        z = self._sites(u.flatten(0, 1))  # (n,N,D)
        if torch.is_grad_enabled():
            quantised, commitment = self.quantiser.learn(z, int(batch["seed"]))
        else:  # a score: it leaves the book alone and judges the fields only
            quantised, commitment = self.quantiser(z), z.new_zeros(())
        error = mean_frame_error(self._fields(quantised).unflatten(0, u.shape[:2]), u, AT_REST)
        return {"loss": error + COMMITMENT * commitment, "error": error, "commitment": commitment}

    def _language_loss(self, batch: Batch) -> dict[str, Tensor]:
        context, target = self.words(batch["support"]), self.words(batch["u"][:, None])
        start, end = self._special(target, BOS), self._special(target, EOS)
        text = torch.cat((start, self.marked(context), self.marked(target), end), 1)
        logits = self.language(text[:, :-1])
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].flatten())}

    # ---- words -------------------------------------------------------------------------------------------------
    def _sites(self, u: Tensor) -> Tensor:
        return in_parts(self.encoder, u, self.grid, self.config.widths[1]).flatten(2).transpose(1, 2)  # (n,N,D)

    def _fields(self, z: Tensor) -> Tensor:
        maps = z.transpose(1, 2).unflatten(2, self.sites)  # (n,D,*sites)
        return in_parts(self.decoder, maps, self.grid, self.config.widths[1])  # (n,C,*grid)

    @torch.no_grad()
    def words(self, u: Tensor) -> Tensor:
        """Trajectories (B,K,T,C,*grid) -> words (B,K,T N Q); in float32, as forecasts are."""
        with torch.autocast(u.device.type, enabled=False):
            codes = self.quantiser.codes(self._sites(self.lift(u).flatten(0, 2)))  # (B K T,N,Q)
        return codes.reshape(*u.shape[:2], -1)

    def _special(self, like: Tensor, word: int) -> Tensor:
        return like.new_full((len(like), 1), self.config.n_codes + word)

    def marked(self, words: Tensor) -> Tensor:
        """(B,K,n) -> (B,K(n+2)): every trajectory between <bot> and <eot>."""
        begin, end = (words.new_full((*words.shape[:2], 1), self.config.n_codes + w) for w in (BOT, EOT))
        return torch.cat((begin, words, end), 2).flatten(1)

    # ---- forecasts ---------------------------------------------------------------------------------------------
    def adapt(
        self, support: Tensor | None = None, xi: Tensor | None = None, generator: torch.Generator | None = None
    ) -> State:
        support = self.card.given("support", support)
        return {"words": self.marked(self.words(support))}

    def rollout(self, u_hist: Tensor, state: State, n_frames: int, generator: torch.Generator | None = None) -> Tensor:
        if n_frames == 0:
            return u_hist[:, :0]
        seen = self.words(u_hist[:, None])[:, 0]  # (B,n)
        prompt = torch.cat((self._special(seen, BOS), state["words"], self._special(seen, BOT), seen), 1)
        config = self.config
        new = self.language.sample(prompt, n_frames * self.n_words, config.n_codes, config.temperature, generator)
        codes = new.reshape(len(new) * n_frames, -1, config.n_books)  # (B T,N,Q)
        u = self._fields(self.quantiser.latents(codes)).unflatten(0, (len(new), n_frames))
        return self.lift.inverse(u)

    def encode(self, u: Tensor) -> Tensor:
        """Latents before quantisation (B,T,N,D)."""
        return self._sites(self.lift(u).flatten(0, 1)).unflatten(0, u.shape[:2])


SOLVER = Zebra
