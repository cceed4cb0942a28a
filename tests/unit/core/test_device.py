"""Devices by name, ranks from the environment, and functions that compile only where it pays."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pdejepa.core import device
from pdejepa.core.errors import ConfigError, ParameterError, ResourceError


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Pretend that the machine has so many GPUs."""
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE", "PDEJEPA_COMPILE"):
        monkeypatch.delenv(name, raising=False)

    def pretend(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return pretend


def test_auto_and_cpu(gpus: Callable[[int], None]) -> None:
    gpus(0)
    assert device.pick_device() == torch.device("cpu")
    assert device.pick_device("cpu") == torch.device("cpu")
    gpus(2)
    assert device.pick_device("auto") == torch.device("cuda:0")
    assert device.pick_device("cuda:1") == torch.device("cuda:1")
    assert device.pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(("local_rank", "index"), [("0", 0), ("1", 1), ("3", 1)])
def test_local_rank(
    gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, local_rank: str, index: int
) -> None:
    gpus(2)
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert device.pick_device("auto") == torch.device("cuda", index)
    assert device.pick_device("cuda") == torch.device("cuda", index)


def test_a_missing_device_names_what_exists(gpus: Callable[[int], None]) -> None:
    gpus(0)
    with pytest.raises(ResourceError, match="Device cuda was asked for; this machine has cpu only"):
        device.pick_device("cuda")
    gpus(1)
    with pytest.raises(ResourceError, match="Device cuda:1 was asked for; this machine has cpu, cuda:0"):
        device.pick_device("cuda:1")


@pytest.mark.parametrize(
    "name", ["gpu", "", "cuda:", "cuda:-1", "cuda:x", "CUDA", "cuda:99999999999", "cpu "]
)
def test_unknown_names(name: str) -> None:
    with pytest.raises(ParameterError, match=r"Unknown device .* Use auto, cpu, cuda or cuda:N\."):
        device.pick_device(name)


@pytest.mark.parametrize("name", ["gpu", "GPU", "gpu:0"])
def test_a_gpu_is_called_cuda(name: str) -> None:
    with pytest.raises(ParameterError, match="did you mean 'cuda'"):
        device.pick_device(name)


def test_devices_themselves(gpus: Callable[[int], None]) -> None:
    gpus(2)
    for given in ("cpu", "cuda:1"):
        assert device.pick_device(torch.device(given)) == torch.device(given)
    for wrong in (torch.device("meta"), None, 0):
        with pytest.raises(ParameterError, match="Unknown device"):
            device.pick_device(wrong)  # type: ignore[arg-type]


def test_rank_and_world(monkeypatch: pytest.MonkeyPatch, gpus: Callable[[int], None]) -> None:
    assert device.rank_and_world() == (0, 1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert device.rank_and_world() == (3, 4)
    for rank in ("4", "-1", "x", "1.5"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(ConfigError, match="RANK="):
            device.rank_and_world()


def test_fuse_leaves_cpu_tensors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", _never)
    double = device.fuse(lambda u: 2 * u)
    assert double(torch.ones(2)).tolist() == [2.0, 2.0]


def _never(*_args: Any, **_kwargs: Any) -> Any:
    raise AssertionError("compiled although it should not")


def test_fuse_compiles_once_for_gpu_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def compile_(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        calls.append(options)
        return lambda *args: ("compiled", function(*args))

    monkeypatch.delenv("PDEJEPA_COMPILE", raising=False)
    monkeypatch.setattr(device, "_on_gpu", lambda values: True)
    monkeypatch.setattr(torch, "compile", compile_)
    double = device.fuse(_double)
    assert double(2) == ("compiled", 4)
    assert double(3) == ("compiled", 6)
    assert len(calls) == 1
    assert double.__name__ == "_double"
    monkeypatch.setenv("PDEJEPA_COMPILE", "0")
    assert double(2) == 4
    monkeypatch.setattr(device, "_on_gpu", lambda values: False)
    monkeypatch.setenv("PDEJEPA_COMPILE", "1")
    assert double(2) == 4
    monkeypatch.setenv("PDEJEPA_COMPILE", "cpu")
    assert double(2) == ("compiled", 4)


def _double(u: Any) -> Any:
    return 2 * u


def test_fuse_falls_back_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_(_function: Callable[..., Any], **_options: Any) -> Callable[..., Any]:
        def fail(*_args: Any) -> Any:
            raise ImportError("no compiler here")

        return fail

    monkeypatch.delenv("PDEJEPA_COMPILE", raising=False)
    monkeypatch.setattr(device, "_on_gpu", lambda values: True)
    monkeypatch.setattr(torch, "compile", compile_)
    double = device.fuse(_double)
    with pytest.warns(RuntimeWarning, match=r"_double could not be compiled .*no compiler here"):
        assert double(2) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert double(2) == 4


def test_fuse_does_not_hide_failures_of_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_(function: Callable[..., Any], **_options: Any) -> Callable[..., Any]:
        return function

    monkeypatch.setattr(device, "_on_gpu", lambda values: True)
    monkeypatch.setattr(torch, "compile", compile_)
    with pytest.raises(torch.OutOfMemoryError):
        device.fuse(_out_of_memory)(1)


def _out_of_memory(_u: Any) -> Any:
    raise torch.OutOfMemoryError("no memory")


def test_a_wrong_call_does_not_end_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_(_function: Callable[..., Any], **_options: Any) -> Callable[..., Any]:
        def traced(u: Any) -> Any:
            if u is None:
                raise ImportError("tracing failed")
            return ("compiled", u)

        return traced

    monkeypatch.delenv("PDEJEPA_COMPILE", raising=False)
    monkeypatch.setattr(device, "_on_gpu", lambda values: True)
    monkeypatch.setattr(torch, "compile", compile_)
    double = device.fuse(_double)
    with pytest.raises(TypeError):
        double(None)
    assert double(1) == ("compiled", 1)


def test_first_tensor_decides() -> None:
    assert not device._on_gpu([])
    assert not device._on_gpu([1, "a", [torch.ones(1)]])
    assert not device._on_gpu([torch.ones(1), "cuda"])


def test_chunks_on_several_threads_keep_their_order() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = device.map_chunks(lambda item: (item, torch.get_num_threads()), list(range(20)), torch.device("cpu"))
        assert seen == [(item, 1) for item in range(20)]
        assert torch.get_num_threads() == 2
        with device.few_threads(torch.zeros(10)):
            assert torch.get_num_threads() == 1
        with device.few_threads(torch.zeros(device.SMALL + 1)):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="a peak that cannot be forgotten")
def test_the_most_memory_can_be_counted_anew() -> None:
    """Or what a small network used would be what a large one before it did."""
    cpu, much = torch.device("cpu"), 4 * 50_000_000
    device.forget_memory(cpu)
    before = device.used_memory(cpu)
    torch.ones(much // 4)
    assert device.used_memory(cpu) > before + 0.8 * much
    device.forget_memory(cpu)
    assert device.used_memory(cpu) < before + 0.5 * much
