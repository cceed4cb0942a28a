"""Zebra: its size, the quantiser against the package's formulas, the text, and the order of words."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from pdejepa.baselines.zebra import BOS, BOT, EOS, EOT, Quantiser, Zebra, ZebraConfig, residual_vq
from pdejepa.core.errors import ResourceError
from pdejepa.core.weights import read_weights, write_weights
from tests.unit.baselines.token_solvers import count, on_meta, rough, shaken, task_of


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = importlib.import_module

    def without(name: str, *rest: object) -> object:
        if name == "vector_quantize_pytorch":
            raise ImportError(name)
        return plain(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ResourceError, match=r"pip install \"pdejepa\[zebra\]\""):
        residual_vq()


pytest.importorskip("vector_quantize_pytorch")


@pytest.mark.parametrize(
    ("name", "tokeniser", "language"),
    [("combined", 4.0, 8.5), ("gray_scott", 21.5, 20.5), ("vorticity", 21.8, 20.5), ("wave_2d", 21.8, 35.7)],
)
def test_size(name: str, tokeniser: float, language: float) -> None:
    solver = on_meta(Zebra, name)
    assert round((count(solver.encoder) + count(solver.decoder)) / 1e6, 1) == tokeniser
    assert round(count(solver.language) / 1e6, 1) == language
    assert count(solver.quantiser) == 0  # the book is no parameter


def test_words_per_frame() -> None:
    line, plane = on_meta(Zebra, "combined"), on_meta(Zebra, "vorticity")
    assert (line.n_words, plane.n_words) == (32, 128)
    assert 2 * 30 * 128 + 6 <= 8192


def quantiser(**changes: float) -> Quantiser:
    torch.manual_seed(0)
    made = Quantiser(ZebraConfig(code=4, n_codes=8, n_books=2, **changes))  # type: ignore[arg-type]
    made.vq.layers[0]._codebook.embed.normal_()  # type: ignore[index, union-attr]
    return made


def test_codes_are_nearest_then_nearest_to_the_rest() -> None:
    made, z = quantiser(), torch.randn(3, 5, 4)
    book = made.vq.layers[0]._codebook.embed[0]  # type: ignore[index, union-attr]
    first = torch.cdist(z, book).argmin(-1)
    second = torch.cdist(z - book[first], book).argmin(-1)
    assert torch.equal(made.codes(z), torch.stack((first, second), -1))
    torch.testing.assert_close(made.latents(made.codes(z)), book[first] + book[second])
    torch.testing.assert_close(made(z), book[first] + book[second])


def test_commitment_by_hand() -> None:
    made, z = quantiser(code_temperature=0.0, dead_below=0.0), torch.randn(3, 5, 4, requires_grad=True)
    book = made.vq.layers[0]._codebook.embed[0].clone()  # type: ignore[index, union-attr]
    first, second = made.codes(z).unbind(-1)
    quantised, commitment = made.learn(z, 0)
    torch.testing.assert_close(quantised, book[first] + book[second])
    rests = (z - book[first], z - book[first] - book[second])
    torch.testing.assert_close(commitment, rests[0].square().mean() + rests[1].square().mean())
    (gradient,) = torch.autograd.grad(quantised.sum(), z)
    assert bool(gradient.any())  # it passes through the choice of codes


def test_it_is_the_packages_own_result() -> None:
    library = importlib.import_module("vector_quantize_pytorch").ResidualVQ(
        dim=4, num_quantizers=2, codebook_size=8, shared_codebook=True
    )
    made, z = quantiser(), torch.randn(3, 5, 4)
    library.load_state_dict(made.vq.state_dict())
    quantised, codes, _ = library.eval()(z)
    torch.testing.assert_close(made(z), quantised)
    assert torch.equal(made.codes(z), codes)


def test_learning_moves_the_book_by_its_seed_alone() -> None:
    z = torch.randn(6, 5, 4)
    books = []
    for seed, noise in ((5, 0), (5, 1), (6, 0)):
        made = quantiser()
        torch.manual_seed(noise)
        before = torch.random.get_rng_state()
        made.learn(z, seed)
        assert torch.equal(torch.random.get_rng_state(), before)
        books.append(made.state_dict())
    same = [all(torch.equal(a, b) for a, b in zip(books[0].values(), o.values(), strict=True)) for o in books[1:]]
    assert same == [True, False]
    still = quantiser()
    before = {key: value.clone() for key, value in still.state_dict().items()}
    still(z)
    still.codes(z)
    assert all(torch.equal(value, before[key]) for key, value in still.state_dict().items())


def test_the_shared_book_is_saved_once(tmp_path: Path) -> None:
    made, other = quantiser(), Quantiser(ZebraConfig(code=4, n_codes=8, n_books=2))
    state = made.state_dict()
    assert not [key for key in state if "layers.1." in key]
    write_weights(tmp_path / "book.safetensors", state)
    other.load_state_dict(read_weights(tmp_path / "book.safetensors"))
    z = torch.randn(3, 5, 4)
    assert torch.equal(made.codes(z), other.codes(z))


def tiny(name: str = "gray_scott") -> Zebra:
    task = task_of(name)
    torch.manual_seed(0)
    return shaken(Zebra(Zebra.recipe("tiny", task).model, task))


def test_words_stand_frame_by_frame() -> None:
    solver, u = tiny(), rough("gray_scott", 2, 3)
    words = solver.words(u[:, None])  # (B,1,T N Q)
    assert words.shape == (2, 1, 3 * solver.n_words)
    alone = solver.words(u[:, None, 1:2])
    assert torch.equal(words[..., solver.n_words : 2 * solver.n_words], alone)
    codes = solver.quantiser.codes(solver.encode(u)[:, 1])  # (B,N,Q)
    assert torch.equal(alone[:, 0], codes.flatten(1))


def test_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = tiny()
    n, seen = solver.config.n_codes, []
    forward = solver.language.forward

    def watched(tokens: torch.Tensor, cache: object = None) -> torch.Tensor:
        seen.append(tokens)
        return forward(tokens, cache)  # type: ignore[arg-type]

    monkeypatch.setattr(solver.language, "forward", watched)
    u, support = rough("gray_scott", 2, 2), rough("gray_scott", 2, 3).flip(0)[:, None]
    loss = solver.loss("language", {"u": u, "support": support})["loss"]
    a, b = solver.words(support)[0, 0].tolist(), solver.words(u[:, None])[0, 0].tolist()
    text = [n + BOS, n + BOT, *a, n + EOT, n + BOT, *b, n + EOT, n + EOS]
    assert seen[0][0].tolist() == text[:-1]
    logits = forward(seen[0])
    own = -logits[0].log_softmax(-1)[torch.arange(len(text) - 1), torch.tensor(text[1:])].mean()
    whole = nn_loss(logits[1:], seen[0][1:], n + EOS)
    torch.testing.assert_close(loss, (own + whole) / 2)


def nn_loss(logits: torch.Tensor, text: torch.Tensor, end: int) -> torch.Tensor:
    after = torch.cat((text[:, 1:], torch.full((len(text), 1), end)), 1)
    return -logits.log_softmax(-1).gather(2, after[..., None]).mean()


def test_a_forecast_is_drawn() -> None:
    solver, u = tiny(), rough("gray_scott", 2, 1)
    state = solver.adapt(rough("gray_scott", 2, 3)[:, None])

    def drawn(seed: int) -> torch.Tensor:
        return solver.rollout(u, state, 3, torch.Generator().manual_seed(seed))

    with torch.no_grad():
        assert drawn(0).shape == (2, 3, 2, 32, 32)
        assert torch.equal(drawn(0), drawn(0))
        assert not all(torch.equal(drawn(0), drawn(seed)) for seed in range(1, 4))


def test_scores_leave_the_book_alone() -> None:
    solver = tiny()
    batch = {"u": rough("gray_scott", 4, 1)}
    batch |= solver.draws("tokenise", batch, torch.Generator().manual_seed(3))
    before = {key: value.clone() for key, value in solver.quantiser.state_dict().items()}
    with torch.no_grad():
        solver.loss("tokenise", batch)
    assert all(torch.equal(value, before[key]) for key, value in solver.quantiser.state_dict().items())
    solver.loss("tokenise", batch)["loss"].backward()
    assert not all(torch.equal(value, before[key]) for key, value in solver.quantiser.state_dict().items())
