"""Several ranks as one: the process group, means and decisions that all ranks share, and what to say if one is lost.

Started with torchrun, every rank works on its slice of each global batch.  Tensors on GPUs travel with NCCL, small
decisions (shall we save? shall we stop?) as CPU tensors with gloo, so that they never make a GPU wait.  With one
rank every function here is the identity and no process group exists.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from pdejepa.core.device import rank_and_world
from pdejepa.core.errors import ResourceError

TIMEOUT_S = 600.0
_recent: deque[dist.Work] = deque(maxlen=64)
_FAILED = -(2**62)  # what rank 0 sends in place of an answer that it could not find
_SIGNS_OF_LOSS = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out", "timeout")


def start_group(device: torch.device, timeout_s: float = TIMEOUT_S) -> tuple[int, int]:
    """Join the ranks that torchrun started; return rank and number of ranks, (0, 1) without torchrun."""
    rank, world = rank_and_world()
    if world == 1:
        return 0, 1
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        dist.init_process_group(_backend(device), timeout=datetime.timedelta(seconds=timeout_s))
    except (RuntimeError, ValueError) as error:
        raise ResourceError(
            f"Rank {rank} of {world} cannot reach the others ({_first_line(error)}). "
            "Start all ranks with torchrun, or only one without it."
        ) from error
    return rank, world


def end_group() -> None:
    """Leave the process group, if there is one.  A group that lost a rank cannot say goodbye properly."""
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def _backend(device: torch.device) -> str:
    """NCCL wants a GPU for each rank; ranks that share one talk through gloo."""
    n_local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    has_own_gpu = device.type == "cuda" and n_local <= torch.cuda.device_count()
    return "cpu:gloo,cuda:nccl" if has_own_gpu else "gloo"


def n_ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def mean_over_ranks(tensor: Tensor) -> Tensor:
    """The mean of a tensor over the ranks, without gradient; the tensor itself if there is one rank."""
    n = n_ranks()
    if n == 1:
        return tensor
    total = tensor.detach().clone()
    _wait(dist.all_reduce(total, async_op=True))
    return total / n


def _wait(work: dist.Work | None) -> None:
    """Wait for a collective, and keep it for a while.

    If we let go of it at once, a thread of gloo may be the last to hold it, and then needs Python's lock to put its
    tensors away.  Ending the group waits for that thread while holding the lock: both would wait for ever.
    """
    if work is not None:
        _recent.append(work)
        work.wait()


def rank_slice(n: int, rank: int, world: int) -> slice:
    """The part of n things that one rank works on; sizes differ by one at most."""
    return slice(rank * n // world, (rank + 1) * n // world)


def agree(values: Sequence[int]) -> list[int]:
    """The largest of each value over the ranks: what one rank wants, all do."""
    if n_ranks() == 1:
        return list(values)
    shared = torch.tensor(values, dtype=torch.int64)
    _wait(dist.all_reduce(shared, op=dist.ReduceOp.MAX, async_op=True))
    return [int(value) for value in shared]


def ask_rank_zero(question: Callable[[], int]) -> int:
    """The answer of rank 0 on all ranks.  If finding it fails there, it fails everywhere and at once."""
    if n_ranks() == 1:
        return question()
    rank, answer = dist.get_rank(), torch.tensor(_FAILED, dtype=torch.int64)
    try:
        if rank == 0:
            answer.fill_(question())
    finally:
        _wait(dist.broadcast(answer, src=0, async_op=True))
    if int(answer) == _FAILED:
        raise ResourceError(f"Rank {rank} stops because rank 0 failed; see the message of rank 0.")
    return int(answer)


@contextlib.contextmanager
def explain_loss(rank: int, describe: Callable[[], str]) -> Iterator[None]:
    """Turn a collective that failed into one sentence; `describe` tells the step and the last checkpoint."""
    try:
        yield
    except RuntimeError as error:  # the errors of torch.distributed are RuntimeErrors, those of gloo plain ones
        text = str(error).lower()
        if n_ranks() == 1 or not any(sign in text for sign in _SIGNS_OF_LOSS):
            raise
        raise ResourceError(f"Rank {rank} lost contact with another rank {describe()}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
