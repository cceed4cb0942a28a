"""The health check tells good features from bad ones, in words."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pdejepa.method.health import HealthCheck, judge, ridge_r2, spread, too_early, variance_shares
from pdejepa.method.pretrain import Pretrain
from pdejepa.models.patches import PatchGrid
from pdejepa.training.stage import Context
from tests.unit.method.small_run import small_training

WIDTH = 32
LINE = PatchGrid((32,), 4, (True,))


class Features(nn.Module):
    """An encoder made of a rule: `what` decides what its tokens tell."""

    def __init__(self, what: str) -> None:
        super().__init__()
        draws = torch.Generator().manual_seed(0)
        self.what = what
        self.mix = torch.randn(24, WIDTH, generator=draws)
        self.places = torch.randn(8, WIDTH, generator=draws)
        self.one = torch.randn(WIDTH, generator=draws)

    def frames(self, u: Tensor) -> Tensor:
        patches = LINE.split(u)  # (B,T,N,4)
        waves = [wave(patches * k) for k in (0.5, 1.0, 2.0) for wave in (torch.sin, torch.cos)]
        signal = torch.cat(waves, -1) @ self.mix
        if self.what == "state":
            return signal
        if self.what == "places":
            return self.places + 0.01 * signal
        return self.one + 1e-3 * signal  # everything alike


def measured(what: str) -> dict[str, float]:
    draws = torch.Generator().manual_seed(1)
    u = torch.randn(16, 6, 1, 32, generator=draws)
    xi = torch.rand(16, 2, generator=draws).double() + 0.1
    return HealthCheck(Features(what), LINE).measure(u, xi, draws)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "word"), [("state", "healthy"), ("places", "position-only"), ("alike", "collapsing")]
)
def test_verdicts(what: str, word: str) -> None:
    verdict = judge(measured(what), WIDTH)
    assert verdict.word == word
    assert str(verdict).startswith(word)
    assert bool(verdict.advice) == (word != "healthy")


def test_the_field_can_be_read_from_features_that_hold_it() -> None:
    assert measured("state")["read_u"] > 0.5
    assert measured("places")["share_place"] > 0.9


def test_spread_of_known_features() -> None:
    draws = torch.Generator().manual_seed(0)
    tokens = torch.zeros(4096, 8)
    tokens[:, :2] = torch.randn(4096, 2, generator=draws)
    found = spread(tokens)
    assert found["rank"] == pytest.approx(2.0, abs=0.05)
    assert found["participation"] == pytest.approx(2.0, abs=0.05)
    assert found["channel_std"] == pytest.approx(2 / 8, abs=0.02)
    assert found["cosine"] == pytest.approx(0.0, abs=0.02)


def test_variance_shares_of_known_features() -> None:
    z = torch.zeros(4, 3, 5, 2)
    z += torch.arange(4.0)[:, None, None, None]  # the trajectory alone
    found = variance_shares(z)
    assert found["share_trajectory"] == pytest.approx(1.0)
    assert found["share_time"] == pytest.approx(0.0, abs=1e-12)


def test_ridge_is_judged_on_other_trajectories() -> None:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(10, 50, 3, generator=draws)
    assert ridge_r2(x, x @ torch.randn(3, 2, generator=draws)) > 0.999
    assert ridge_r2(x, torch.randn(10, 50, 2, generator=draws)) < 0.1


def test_no_verdict_before_half_of_the_training_or_during_the_warm_up() -> None:
    shares = (0.1, 0.33, 0.49, 0.5, 0.7, 1.0)
    assert [too_early(share, warmup=0.05) for share in shares] == [True, True, True, False, False, False]
    assert [too_early(share, warmup=0.8) for share in shares] == [True, True, True, True, True, False]


def test_the_loop_is_told_nothing_about_a_young_encoder() -> None:
    config, data, surrogate = small_training()
    stage = Pretrain(config, data, surrogate, Context(torch.device("cpu")))
    scores = stage.score()
    assert stage.describe(scores, 0.33) == ""
    assert stage.describe(scores, 1.0).startswith("encoder ")
