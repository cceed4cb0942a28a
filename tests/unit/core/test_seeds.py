"""Counter-based random numbers: published test vectors, purity, independence of the batch, and the laws themselves."""

from __future__ import annotations

import hashlib

import pytest
import torch
from torch import Tensor

from pdejepa.core.seeds import Draws, derive_key, philox
from tests.gpu import needs_cuda

KNOWN_ANSWERS = [  # counter, key, output of Philox 4x32-10, from the test vectors of the generator's authors
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    words = philox(tuple(torch.tensor([word], dtype=torch.int64) for word in counter), key)
    assert tuple(int(word) for word in words) == expected


def test_philox_words_stay_within_32_bits() -> None:
    counter = torch.arange(10_000, dtype=torch.int64)
    zero = torch.zeros_like(counter)
    for word in philox((counter, zero, zero, zero), (0xFFFFFFFF, 0xFFFFFFFF)):
        assert int(word.min()) >= 0
        assert int(word.max()) <= 0xFFFFFFFF


def draws(rows: Tensor | range = range(64), **changes: object) -> Draws:
    given = {"system": "heat", "split": "train", "purpose": "initial", "seed": 0, **changes}
    return Draws(rows=torch.as_tensor(list(rows)), **given)  # type: ignore[arg-type]


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """Bit for bit, for every kind of draw."""
    positions = torch.arange(7)
    together, alone = draws(range(100)), draws(range(41, 42))
    assert torch.equal(together.uniform(5)[41:42], alone.uniform(5))
    assert torch.equal(together.integers(5, 1, 9)[41:42], alone.integers(5, 1, 9))
    assert torch.equal(together.complex_normal(positions)[41:42], alone.complex_normal(positions))
    shuffled = draws(torch.tensor([99, 41, 0]))
    assert torch.equal(together.uniform(5)[[99, 41, 0]], shuffled.uniform(5))


def test_a_number_does_not_depend_on_how_many_are_drawn() -> None:
    assert torch.equal(draws().uniform(9)[:, :4], draws().uniform(4))
    assert torch.equal(draws().complex_normal(torch.arange(9))[:, [2, 7]], draws().complex_normal(torch.tensor([2, 7])))


@pytest.mark.parametrize(
    "change", [{"system": "burgers"}, {"split": "valid"}, {"purpose": "environment"}, {"seed": 1}, {"attempt": 1}]
)
def test_every_part_of_the_key_matters(change: dict[str, object]) -> None:
    assert not torch.isin(draws(**change).uniform(8), draws().uniform(8)).any()


def test_draws_of_one_purpose_are_kept_apart() -> None:
    assert not torch.isin(draws().uniform(8, at=1), draws().uniform(8, at=0)).any()


def test_attempt_may_differ_from_row_to_row() -> None:
    attempt = torch.zeros(64, dtype=torch.int64)
    attempt[5] = 2
    mixed = draws(attempt=attempt).uniform(3)
    assert torch.equal(mixed[:5], draws().uniform(3)[:5])
    assert torch.equal(mixed[5], draws(attempt=2).uniform(3)[5])


def test_key_is_that_of_the_documented_hash() -> None:
    digest = hashlib.sha256(b"heat/train/initial/0").digest()
    assert derive_key("heat", "train", "initial", 0) == (
        int.from_bytes(digest[:4], "little"),
        int.from_bytes(digest[4:8], "little"),
    )


def test_uniform_law() -> None:
    values = draws(range(2000)).uniform(100, -1.0, 3.0)
    assert float(values.min()) >= -1.0
    assert float(values.max()) < 3.0
    unit = (values.flatten() + 1) / 4
    assert float(unit.mean()) == pytest.approx(0.5, abs=4 * 0.2887 / 447)
    assert float(unit.var()) == pytest.approx(1 / 12, rel=0.01)
    counts = torch.histc(unit, 50, 0.0, 1.0)
    chi2 = float(((counts - 4000) ** 2 / 4000).sum())
    assert 20 < chi2 < 90  # 49 degrees of freedom
    rows, columns = values[:, :-1].flatten(), values[:, 1:].flatten()
    assert abs(float(torch.corrcoef(torch.stack((rows, columns)))[0, 1])) < 0.01


def test_uniform_has_53_random_bits() -> None:
    whole = (draws(range(1000)).uniform(10) * 2**53).long()
    for bit in (0, 1, 26, 27, 51, 52):
        assert float(((whole >> bit) & 1).double().mean()) == pytest.approx(0.5, abs=0.02)


def test_integers_cover_both_ends_evenly() -> None:
    values = draws(range(3000)).integers(10, 1, 3)
    assert sorted(values.unique().tolist()) == [1.0, 2.0, 3.0]
    for value in (1, 2, 3):
        assert float((values == value).double().mean()) == pytest.approx(1 / 3, abs=0.012)


def test_complex_normal_moments() -> None:
    """E z = 0, E |z|^2 = 1, E z^2 = 0, E |z|^4 = 2; real and imaginary part are Gaussian of variance 1/2."""
    z = draws(range(2000)).complex_normal(torch.arange(100)).flatten()
    assert bool(torch.isfinite(z).all())
    assert abs(complex(z.mean())) < 0.01
    assert abs(complex((z**2).mean())) < 0.01
    assert float((z.abs() ** 2).mean()) == pytest.approx(1.0, abs=0.01)
    assert float((z.abs() ** 4).mean()) == pytest.approx(2.0, abs=0.06)
    for part in (z.real, z.imag):
        assert float(part.pow(4).mean() / part.pow(2).mean() ** 2) == pytest.approx(3.0, abs=0.1)


@needs_cuda
def test_gpu_draws_the_same_bits() -> None:
    here, there = draws(), draws(device=torch.device("cuda"))
    assert torch.equal(here.uniform(33), there.uniform(33).cpu())
    assert torch.equal(here.integers(9, 1, 5), there.integers(9, 1, 5).cpu())
