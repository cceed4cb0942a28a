"""A snapshot of the machine for bug reports: versions, devices, memory, disk.

It holds nothing personal: no user name, no host name, no path.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pdejepa
from pdejepa.core.text import human_bytes

if TYPE_CHECKING:
    from rich.table import Table

REQUIRED = ("torch", "numpy", "scipy", "h5py", "safetensors", "rich", "matplotlib", "typer", "PyYAML")
OPTIONAL = ("triton", "the_well", "xarray", "dask", "exponax", "jax", "pytest", "hypothesis", "ruff", "mypy")


def collect() -> dict[str, Any]:
    """Gather the report as plain data. Whatever cannot be found out is None; nothing raises."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "pdejepa": pdejepa.__version__}
    versions |= {name: _version(name) for name in REQUIRED}
    versions |= {name: found for name in OPTIONAL if (found := _version(name)) is not None}
    return {
        "versions": versions,
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": {"total": os.cpu_count(), "usable": _usable_cpus()},
        "memory_free_bytes": free_memory(),
        "disk_free_bytes": _free_disk(),
        **_torch_facts(),
    }


def missing(report: dict[str, Any]) -> list[str]:
    """Required packages that are not installed."""
    return [name for name in REQUIRED if report["versions"][name] is None]


def render(report: dict[str, Any]) -> Table:
    """The report as a table of two columns."""
    from rich.table import Table

    table = Table(title="pdejepa doctor", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, version in report["versions"].items():
        table.add_row(name, version or "[red]not installed[/red]")
    table.add_section()
    table.add_row("platform", report["platform"])
    table.add_row("CPUs", f"{report['cpus']['usable']} usable of {report['cpus']['total']}")
    table.add_row("threads", _or_unknown(report["threads"]))
    table.add_row("free memory", _size(report["memory_free_bytes"]))
    table.add_row("free disk, current folder", _size(report["disk_free_bytes"]))
    for device in report["devices"]:
        sizes = f"{_size(device['memory_free_bytes'])} free of {_size(device['memory_bytes'])}"
        table.add_row(device["name"], f"{device['model']}, {sizes}")
    if not report["devices"]:
        table.add_row("GPU", "none found")
    table.add_row("compiled functions", report["compile"])
    return table


def free_memory() -> int | None:
    """Bytes of main memory that a new process could use, with the limit of a container respected."""
    known = [amount for amount in (_system_memory(), _container_memory()) if amount is not None]
    return min(known) if known else None


def _system_memory() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _container_memory() -> int | None:
    """What a control group leaves us: version 2 first, then version 1."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            return max(0, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # no such file, or "max": no limit
            continue
    return None


def _free_disk() -> int | None:
    try:
        return shutil.disk_usage(".").free
    except OSError:
        return None


def _usable_cpus() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch_facts() -> dict[str, Any]:
    """What only PyTorch knows; a missing or broken PyTorch is a finding, not a crash."""
    try:
        import torch
    except Exception as error:  # a half-installed PyTorch raises all kinds of things
        return {
            "threads": None,
            "devices": [],
            "compile": f"no: torch does not load ({type(error).__name__})",
        }
    devices = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(index)
        devices.append(
            {
                "name": f"cuda:{index}",
                "model": torch.cuda.get_device_name(index),
                "memory_bytes": total,
                "memory_free_bytes": free,
            }
        )
    return {"threads": torch.get_num_threads(), "devices": devices, "compile": _compile_state(bool(devices))}


def _compile_state(has_gpu: bool) -> str:
    if not has_gpu:
        return "not used: they serve GPUs only"
    if os.environ.get("PDEJEPA_COMPILE", "1") == "0":
        return "no: switched off by PDEJEPA_COMPILE=0"
    return "yes" if importlib.util.find_spec("triton") else "no: the package triton is missing"


def _size(n_bytes: int | None) -> str:
    return "unknown" if n_bytes is None else human_bytes(n_bytes)


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else str(value)
