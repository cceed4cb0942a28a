"""The language model: who sees whom, the cache against the whole text, and sampling by hand."""

from __future__ import annotations

import pytest
import torch

from pdejepa.baselines.blocks.language_model import LanguageModel, Room
from pdejepa.models.rope import rotate


def model() -> LanguageModel:
    torch.manual_seed(0)
    net = LanguageModel(n_words=12, width=16, depth=2, heads=2, hidden=24)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return net


@pytest.mark.parametrize(("width", "n_words", "size"), [(256, 264, 8.5), (384, 2056, 20.5), (512, 2056, 35.7)])
def test_size(width: int, n_words: int, size: float) -> None:
    with torch.device("meta"):
        net = LanguageModel(n_words, width, 8, 8, 4 * width)
    assert round(sum(p.numel() for p in net.parameters()) / 1e6, 1) == size


def test_no_word_sees_the_next() -> None:
    net, text = model(), torch.randint(10, (2, 9))
    changed = text.clone()
    changed[:, 5] += 1
    before, after = net(text), net(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


@pytest.mark.parametrize("pieces", [(4, 1, 1, 3), (1,) * 9, (2, 7)])
def test_the_cache_changes_nothing(pieces: tuple[int, ...]) -> None:
    net, text = model(), torch.randint(12, (2, 9))
    room = Room(9)
    parts = [net(piece, room) for piece in text.split(list(pieces), 1)]
    torch.testing.assert_close(torch.cat(parts, 1), net(text))
    assert room.filled == [9, 9]


def test_only_differences_of_positions_count() -> None:
    net = model()
    angles = torch.arange(6)[:, None] * net.rates
    cos, sin = angles.cos().float()[None, None], angles.sin().float()[None, None]
    q, k = (torch.randn(8).expand(1, 1, 6, 8) for _ in range(2))
    products = rotate(q, cos, sin) @ rotate(k, cos, sin).transpose(-1, -2)
    torch.testing.assert_close(products[0, 0, 3, 1], products[0, 0, 5, 3])
    assert not torch.allclose(products[0, 0, 3, 1], products[0, 0, 3, 2])


def test_cold_sampling_takes_the_likeliest_allowed_word() -> None:
    net, text = model(), torch.randint(10, (3, 4))
    new = net.sample(text, 5, n_allowed=10, temperature=1e-4, generator=torch.Generator().manual_seed(0))
    for _ in range(5):
        best = net(text)[:, -1, :10].argmax(-1, keepdim=True)
        text = torch.cat((text, best), 1)
    assert torch.equal(new, text[:, 4:])


def test_warm_sampling_follows_the_probabilities() -> None:
    net = model()
    prompt = torch.tensor([[1, 2, 3]]).expand(4000, -1)
    new = net.sample(prompt, 1, n_allowed=6, temperature=2.0, generator=torch.Generator().manual_seed(0))[:, 0]
    expected = (net(prompt[:1])[0, -1, :6] / 2.0).softmax(-1)
    shares = new.bincount(minlength=6) / 4000
    torch.testing.assert_close(shares, expected.detach(), atol=0.03, rtol=0)
    assert new.max() < 6
