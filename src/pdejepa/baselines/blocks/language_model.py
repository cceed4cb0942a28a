"""A decoder-only language model in the manner of Llama (Touvron et al., 2023), and sampling from it.

    x = embedding(tokens)
    x <- x + Attention(RMS(x))         every token sees itself and earlier ones; rotary positions
    x <- x + SwiGLU(RMS(x))            no biases anywhere
    logits = head(RMS(x))

Sampling keeps keys and values of all earlier tokens in buffers of full length, so that a new token costs one row.
Letters: B rows, n tokens, V vocabulary, K heads, d head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pdejepa.baselines.blocks.tokens import BASE, BlockConfig, Cache, TokenBlock

INIT_STD = 0.02


class Room(Cache):
    """Keys and values of up to `length` tokens, written in place."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.filled: list[int] = []

    def extended(self, block: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if block == len(self.keys):
            shape = (*k.shape[:2], self.length, k.shape[3])
            self.keys.append(k.new_empty(shape))
            self.values.append(v.new_empty(shape))
            self.filled.append(0)
        start, end = self.filled[block], self.filled[block] + k.shape[2]
        self.keys[block][:, :, start:end] = k
        self.values[block][:, :, start:end] = v
        self.filled[block] = end
        return self.keys[block][:, :, :end], self.values[block][:, :, :end]


class LanguageModel(nn.Module):
    rates: Tensor

    def __init__(self, n_words: int, width: int, depth: int, heads: int, hidden: int) -> None:
        super().__init__()
        config = BlockConfig(width, heads, hidden, norm="rms", ffn="swiglu", qkv_bias="none", out_bias=False)
        self.embedding = nn.Embedding(n_words, width)
        self.blocks = nn.ModuleList(TokenBlock(config) for _ in range(depth))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.head = nn.Linear(width, n_words, bias=False)
        n_pairs = width // heads // 2
        rates = BASE ** (-torch.arange(n_pairs, dtype=torch.float64) / n_pairs)
        self.register_buffer("rates", rates, persistent=False)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=INIT_STD)

    def forward(self, tokens: Tensor, cache: Room | None = None) -> Tensor:
        """Logits (B,n,V) of the token after each of tokens (B,n), which continue those in the cache."""
        n, start = tokens.shape[1], cache.filled[0] if cache is not None and cache.filled else 0
        angles = torch.arange(start, start + n, device=tokens.device)[:, None] * self.rates  # (n,d/2)
        rotary = (angles.cos().float()[None, None], angles.sin().float()[None, None])
        is_first = n > 1 and start == 0
        mask = None
        if n > 1 and not is_first:
            mask = torch.ones(n, start + n, dtype=torch.bool, device=tokens.device).tril(start)
        x = self.embedding(tokens)
        for number, block in enumerate(self.blocks):
            x = block(x, mask=mask, rotary=rotary, cache=cache, number=number, is_causal=is_first)
        return self.head(self.norm(x))

    def sample(
        self, prompt: Tensor, n: int, n_allowed: int, temperature: float, generator: torch.Generator | None = None
    ) -> Tensor:
        """n tokens (B,n) after a prompt, each drawn from the first n_allowed words of softmax(logits/temperature)."""
        cache, new, given = Room(prompt.shape[1] + n), [], prompt
        for _ in range(n):
            logits = self(given, cache)[:, -1, :n_allowed].float()
            given = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)  # (B,1)
            new.append(given)
        return torch.cat(new, 1) if new else prompt[:, :0]
