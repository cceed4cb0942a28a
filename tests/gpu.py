"""Tests that need a GPU: marked `cuda` (`pytest -m cuda` runs all of them), and skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch

Test = TypeVar("Test", bound=Callable[..., Any])


class _Marks(list[pytest.MarkDecorator]):
    """Marks for `pytest.param(..., marks=...)` and `pytestmark`, which decorate as well."""

    def __call__(self, test: Test) -> Test:
        for mark in self:
            test = mark(test)
        return test


needs_cuda = _Marks([pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")])
