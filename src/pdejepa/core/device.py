"""Which device to compute on, which rank of how many we are, and compiled functions on GPUs."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import platform
import re
import resource
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

import torch
from torch.autograd import forward_ad

from pdejepa.core.errors import ConfigError, ParameterError, ResourceError, did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

SMALL = 200_000  # values


class Setting(Generic[T]):
    """A setting of the whole process that several threads may want at once.

    The first one in remembers what it was, the strictest wish is in force, and the last one out restores.
    """

    def __init__(self, read: Callable[[], T], write: Callable[[T], object], strictness: Callable[[T], float]) -> None:
        self._read, self._write, self._strictness = read, write, strictness
        self._lock, self._wishes = threading.Lock(), list[T]()
        self._before: T | None = None

    @contextlib.contextmanager
    def held(self, wish: T) -> Iterator[None]:
        """Inside, the setting is `wish`, or something stricter that somebody else wants."""
        with self._lock:
            if not self._wishes:
                self._before = self._read()
            self._wishes.append(wish)
            self._write(max(self._wishes, key=self._strictness))
        try:
            yield
        finally:
            with self._lock:
                self._wishes.remove(wish)
                self._write(max(self._wishes, key=self._strictness) if self._wishes else cast("T", self._before))


MATMUL = Setting(
    torch.get_float32_matmul_precision,
    torch.set_float32_matmul_precision,
    lambda precision: ("medium", "high", "highest").index(precision),
)
CONVOLUTIONS = Setting(
    lambda: torch.backends.cudnn.allow_tf32,
    lambda allowed: setattr(torch.backends.cudnn, "allow_tf32", allowed),
    lambda allowed: not allowed,
)
STANCE = Setting(
    lambda: False,
    lambda is_fixed: torch.compiler.set_stance("eager_on_recompile" if is_fixed else "default"),
    lambda is_fixed: is_fixed,
)
DEFAULT_DTYPE = Setting(torch.get_default_dtype, torch.set_default_dtype, lambda dtype: dtype == torch.float32)


def device_name(device: torch.device) -> str:
    """What a record says it was measured on: the model of the GPU, or cpu."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def machine_name(device: torch.device) -> str:
    """What a record says it was measured on: the GPU, or how many threads of which processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    n = torch.get_num_threads()
    return f"{n} thread{'s' * (n > 1)} of {_processor()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine() or "a CPU"


def pick_device(wish: str | torch.device = "auto") -> torch.device:
    """Return the device for `auto`, `cpu`, `cuda` or `cuda:1`, or for a device of that name.

    `auto` takes a GPU if there is one and the CPU otherwise; a device asked for by name is that device or an
    error, because a job that silently runs fifty times slower is no help. Under torchrun, `auto` and `cuda`
    mean the GPU of the own local rank, shared in turn if there are more ranks than GPUs.
    """
    name = str(wish)
    match = re.fullmatch(r"auto|cpu|cuda(?::(?P<index>\d{1,4}))?", name)
    if match is None:
        near = did_you_mean(name.lower().replace("gpu", "cuda"), ("auto", "cpu", "cuda")) or "."
        raise ParameterError(f"Unknown device {name[:60]!r}{near} Use auto, cpu, cuda or cuda:N.")
    n_gpus = torch.cuda.device_count() if name != "cpu" and torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and n_gpus == 0):
        return torch.device("cpu")
    index = int(match["index"]) if match["index"] else (_local_rank() % n_gpus if n_gpus else 0)
    if index >= n_gpus:
        raise ResourceError(
            f"Device {name} was asked for; this machine has {', '.join(device_names())}. "
            "Use --device auto to take what there is."
        )
    return torch.device("cuda", index)


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for products of bfloat16; without them they are slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def device_names() -> list[str]:
    """Names that `pick_device` accepts on this machine."""
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ["cpu", *(f"cuda:{index}" for index in range(n_gpus))] if n_gpus else ["cpu only"]


def rank_and_world() -> tuple[int, int]:
    """Rank and number of processes as torchrun sets them, `(0, 1)` without it.

    Read from the environment only: sharing out independent work needs no process group.
    """
    rank, world = _env_int("RANK", 0), _env_int("WORLD_SIZE", 1)
    if world < 1 or not 0 <= rank < world:
        raise ConfigError(f"RANK={rank} and WORLD_SIZE={world} in the environment do not fit together.")
    return rank, world


@contextlib.contextmanager
def tf32(device: torch.device) -> Iterator[None]:
    """Matrix products of float32 on a GPU with ten-bit mantissas: several times faster, three digits kept."""
    with MATMUL.held("high") if device.type == "cuda" else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Products and convolutions in true float32, whatever the process has switched on for training."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autocast(device.type, enabled=False))
        stack.enter_context(single_precision())
        if device.type == "cuda":
            stack.enter_context(MATMUL.held("highest"))
            stack.enter_context(CONVOLUTIONS.held(False))
        yield


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """No mixed precision inside; nothing to do on devices that have none, such as `meta`."""
    if not torch.amp.is_autocast_available(device.type):
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)


def single_precision() -> contextlib.AbstractContextManager[None]:
    """New tensors are float32, whatever the default of the process is."""
    return DEFAULT_DTYPE.held(torch.float32)


def used_memory(device: torch.device) -> int:
    """The most memory used since the start or `forget_memory`, in bytes: on the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError, StopIteration, ValueError):  # Linux has a peak that can be forgotten
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_memory(device: torch.device) -> None:
    """Count the most memory used anew, where that can be done."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def free_memory() -> None:
    """Give back what a finished training held: recorded steps keep their memory in cycles of references."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def without_new_code(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Inside, compiled code is used where it fits, and nothing is compiled for shapes that come once or twice."""
    return STANCE.held(True) if device.type == "cuda" else contextlib.nullcontext()


def in_forward_mode() -> bool:
    """Whether derivatives are being computed in forward mode, of which some fused kernels know nothing."""
    return not torch.compiler.is_compiling() and forward_ad._current_level >= 0


def may_fuse_attention() -> bool:
    """Whether PyTorch's attention works here: in forward mode only without its fused kernel."""
    return not in_forward_mode() or not torch.backends.cuda.flash_sdp_enabled()


@contextlib.contextmanager
def few_threads(like: torch.Tensor | None = None) -> Iterator[None]:
    """One thread per operation while CPU arrays of the size of `like` are worked on, unless they are large.

    Sharing out a small array costs more than it saves, and on a busy machine the threads spin waiting for each
    other: a factor of seven was measured on two cores.
    """
    before = torch.get_num_threads()  # of this thread: OpenMP counts for each by itself
    if before == 1 or (like is not None and (like.is_cuda or like.numel() > SMALL)):
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def map_chunks(function: Callable[[T], R], items: Sequence[T], device: torch.device) -> list[R]:
    """[function(item) for item in items], on a CPU with one single-threaded worker per core.

    Chunks are independent, so they use the cores better than the operations inside one chunk would.  Workers begin
    with PyTorch's own settings of a thread: gradients are on.
    """
    n = min(torch.get_num_threads(), len(items))
    if device.type != "cpu" or n <= 1:
        return [function(item) for item in items]
    with few_threads(), ThreadPoolExecutor(n, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(function, items))


def fuse(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` for GPU tensors, leave it as it is for CPU tensors.

    Pointwise chains on a GPU are bound by memory traffic; fusing them is worth an order of magnitude. On the
    CPU the compiler needs a C++ toolchain and seconds that small jobs do not have. The first tensor among
    the arguments decides. Python numbers are compiled in: hand over what changes from call to call, such as a
    step size, as a tensor. A batch size that changes is compiled once more, for any size. `PDEJEPA_COMPILE=0`
    in the environment switches compilation off, `PDEJEPA_COMPILE=cpu` switches it on for CPU tensors too; if it
    fails, one warning is given and the plain function is used from then on.
    """
    state: dict[str, Callable[P, R]] = {}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _should_compile((*args, *kwargs.values())):
            return function(*args, **kwargs)
        if "chosen" not in state:
            torch._dynamo.config.recompile_limit = 64  # one per grid, dtype and stage; past it code runs uncompiled
            state["chosen"] = cast("Callable[P, R]", torch.compile(function))
        try:
            return state["chosen"](*args, **kwargs)
        except _compiler_errors() as error:
            if state["chosen"] is function:
                raise
            result = function(*args, **kwargs)  # a mistake in the arguments shows here, as itself
            _warn_once(function, error)
            state["chosen"] = function
            return result

    return call


def _should_compile(values: tuple[Any, ...]) -> bool:
    wish = os.environ.get("PDEJEPA_COMPILE", "1")
    if wish == "0" or torch.compiler.is_compiling():
        return False
    return wish == "cpu" or _on_gpu(values)


def _on_gpu(values: Iterable[Any]) -> bool:
    """Whether the first tensor, looking into lists and tuples too, lives on a GPU."""
    for value in values:
        if isinstance(value, torch.Tensor):
            return value.is_cuda
        if isinstance(value, list | tuple) and any(isinstance(item, torch.Tensor) for item in value):
            return _on_gpu(value)
    return False


@functools.cache
def _compiler_errors() -> tuple[type[Exception], ...]:
    """Failures of the compiler, not of the function. Loaded late: the module is slow to import.

    Running out of memory is not among them, so it is never hidden behind a second attempt.
    """
    from torch._dynamo.exc import TorchDynamoException

    return (TorchDynamoException, ImportError, NotImplementedError)


def _warn_once(function: Callable[..., Any], error: Exception) -> None:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    name = getattr(function, "__qualname__", repr(function))
    warnings.warn(
        f"{name} could not be compiled and runs uncompiled, which is slower ({reason}). "
        "Set PDEJEPA_COMPILE=0 to silence this.",
        RuntimeWarning,
        stacklevel=3,
    )


def _local_rank() -> int:
    return _env_int("LOCAL_RANK", 0)


def _env_int(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"\d{1,9}", text):
        raise ConfigError(f"{name}={text[:40]!r} in the environment must be a whole number, 0 or more.")
    return int(text)
