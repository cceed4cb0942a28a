"""What core/files promises when things go wrong: killed writers, full disks, damaged files, two at once."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

import pdejepa
from pdejepa.core import atomic, files
from pdejepa.core.errors import ResourceError
from pdejepa.core.files import Damage, Manifest, lock, remove_leftovers, write_aside

SOURCE = str(Path(pdejepa.__file__).parents[1])


@contextlib.contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run `code` in another process; it prints `ready` when it has reached the interesting point."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def kill_minus_nine(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


HALF_WRITTEN = """
import sys, time
from pdejepa.core.files import write_aside
with write_aside(sys.argv[1]) as temporary:
    temporary.write_bytes(b"half")
    print("ready", flush=True)
    time.sleep(60)
"""

HOLDING = """
import sys, time
from pdejepa.core.files import lock
with lock(sys.argv[1], eval(sys.argv[2])):
    print("ready", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def test_kill_in_the_middle_of_a_write(tmp_path: Path) -> None:
    target = tmp_path / "train-0000.hdf5"
    target.write_bytes(b"old and good")
    with child(HALF_WRITTEN, target) as process:
        assert remove_leftovers(tmp_path) == []  # the writer lives
        kill_minus_nine(process)
    assert target.read_bytes() == b"old and good"
    assert list(tmp_path.glob("*.hdf5")) == [target]
    leftovers = [p for p in tmp_path.iterdir() if p != target]
    assert len(leftovers) == 1
    (tmp_path / ".hidden").write_text("not ours")
    (tmp_path / "notes.tmp-1").write_text("not ours")
    assert remove_leftovers(tmp_path, alone=False) == leftovers
    assert sorted(p.name for p in tmp_path.iterdir()) == [".hidden", "notes.tmp-1", "train-0000.hdf5"]


def test_leftovers_of_other_machines_and_of_our_own_number(tmp_path: Path) -> None:
    far = tmp_path / f".a.tmp-1-{'0000' if atomic._host_tag() != '0000' else '1111'}-0123456789abcdef"
    former = tmp_path / f".a.tmp-{os.getpid()}-{atomic._host_tag()}-0123456789abcdef"
    far.touch()
    former.touch()
    with write_aside(tmp_path / "b") as own:
        own.touch()
        assert remove_leftovers(tmp_path, alone=False) == [former]
        assert remove_leftovers(tmp_path) == [far]
    assert (tmp_path / "b").exists()
    assert remove_leftovers(tmp_path / "nowhere") == []


def test_kill_of_a_lock_holder_lets_go(tmp_path: Path) -> None:
    with child(HOLDING, tmp_path, None, 60) as process:
        with pytest.raises(ResourceError), lock(tmp_path, wait=False):
            pass
        kill_minus_nine(process)
        said: list[str] = []
        with lock(tmp_path, wait=False, say=said.append):
            pass
    assert said == []


def test_the_second_writer_waits_and_says_for_whom(tmp_path: Path) -> None:
    said: list[str] = []
    with child(HOLDING, tmp_path, None, 0.4) as process, lock(tmp_path, say=said.append):
        assert process.wait(5) == 0
    assert len(said) == 1
    assert said[0].startswith(f"Another process (pid {process.pid}, host {os.uname().nodename}, since ")
    assert said[0].endswith(f" is writing {tmp_path}. Waiting; Ctrl-C leaves.")


def test_the_second_writer_leaves_if_told_so(tmp_path: Path) -> None:
    with (
        child(HOLDING, tmp_path, None, 60) as process,
        pytest.raises(ResourceError, match=rf"pid {process.pid}, .* is writing {tmp_path}\. Try again later"),
        lock(tmp_path, wait=False),
    ):
        pass


def test_slices_beside_each_other_and_the_whole_alone(tmp_path: Path) -> None:
    with child(HOLDING, tmp_path, (0, 4), 60) as process:
        with lock(tmp_path, (1, 4), wait=False), lock(tmp_path, (2, 4), wait=False):
            pass
        with pytest.raises(ResourceError, match=f"pid {process.pid}"), lock(tmp_path, (0, 4), wait=False):
            pass
        with pytest.raises(ResourceError, match=f"pid {process.pid}"), lock(tmp_path, wait=False):
            pass
        kill_minus_nine(process)
    with lock(tmp_path, wait=False):
        for slice_ in ((0, 4), (3, 8)):
            with pytest.raises(ResourceError, match=f"pid {os.getpid()}"), lock(tmp_path, slice_, wait=False):
                pass
    with lock(tmp_path, (0, 4), wait=False):
        pass


def test_no_two_threads_of_a_crowd_hold_the_lock(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(10):
            with lock(tmp_path, say=lambda _: None):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0005)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most == 1


@pytest.mark.parametrize("content", ["", "nonsense", "[]", '{"pid": "x"}', '{"pid": 1e400}', "[" * 5000])
def test_an_unreadable_lock_file_still_locks(tmp_path: Path, content: str) -> None:
    with lock(tmp_path):
        (tmp_path / ".lock").write_text(content)
        with pytest.raises(ResourceError, match=r"^Another process is writing"), lock(tmp_path, wait=False):
            pass


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(ResourceError, match="Cannot write in"), lock(tmp_path / "a"):
        pass


def test_a_file_system_without_locks_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    said: list[str] = []
    monkeypatch.setattr("fcntl.flock", no_locks)
    with lock(tmp_path, say=said.append):
        pass
    assert said == [f"File locks do not work in {tmp_path}; make sure that no other process writes there."]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_disk_full_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, where: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    target = tmp_path / "a"
    target.write_text("old")
    monkeypatch.setattr(os, where, full)
    with pytest.raises(
        ResourceError, match=r"^Disk full while writing .*/a; what was there before is intact\."
    ):
        files.write_text(target, "new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_disk_full_in_the_block_also_when_hdf5_says_it_in_words(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    words = "Unable to synchronously write data (errno = 28, error message = 'No space left on device')"
    for error in (OSError(errno.ENOSPC, "x"), OSError(words), RuntimeError(words)):
        with pytest.raises(ResourceError, match="Disk full"), write_aside(tmp_path / "a") as temporary:
            temporary.write_text("half")
            raise error
    with pytest.raises(OSError, match="Input/output error"), write_aside(tmp_path / "a"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one megabyte, where the machine lets us mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command on this machine")
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small tmpfs here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_real_full_disk_plain(small_disk: Path) -> None:
    target = small_disk / "a"
    files.write_text(target, "old")
    with pytest.raises(ResourceError, match=r"Disk full while writing"):
        files.write_text(target, "x" * 2_000_000)
    assert target.read_text() == "old"
    assert os.listdir(small_disk) == ["a"]
    with pytest.raises(ResourceError, match="Not enough space"):
        files.check_free_space(small_disk / "b", 2_000_000, "this file")


def test_a_real_full_disk_hdf5(small_disk: Path) -> None:
    target = small_disk / "train-0000.hdf5"
    with write_aside(target) as temporary, h5py.File(temporary, "w") as file:
        file["u"] = np.zeros(10)
    before = target.read_bytes()
    with (
        pytest.raises(ResourceError, match=r"Disk full while writing"),
        write_aside(target) as temporary,
        h5py.File(temporary, "w") as file,
    ):
        file["u"] = np.random.default_rng(0).random(500_000)
    assert target.read_bytes() == before
    assert os.listdir(small_disk) == ["train-0000.hdf5"]


@pytest.fixture
def proven(tmp_path: Path) -> tuple[Path, Manifest]:
    """A folder of four files with its manifest."""
    manifest = Manifest()
    for number in range(4):
        (tmp_path / f"{number}.bin").write_bytes(bytes(range(256)) * 40)
        manifest.add(tmp_path, f"{number}.bin")
    manifest.write(tmp_path)
    return tmp_path, Manifest.read(tmp_path)


@pytest.mark.parametrize("tenth", range(1, 10))
def test_truncated_at_every_tenth(proven: tuple[Path, Manifest], tenth: int) -> None:
    root, manifest = proven
    os.truncate(root / "1.bin", 1024 * tenth)
    assert manifest.verify(root) == [Damage("1.bin", "size differs")]


@pytest.mark.parametrize("position", [0, 1, 5000, 10239])
def test_one_flipped_bit(proven: tuple[Path, Manifest], position: int) -> None:
    root, manifest = proven
    raw = bytearray((root / "2.bin").read_bytes())
    raw[position] ^= 1
    (root / "2.bin").write_bytes(raw)
    assert manifest.verify(root) == [Damage("2.bin", "hash differs")]
    assert manifest.verify(root, ["1.bin"]) == []
    assert str(manifest.verify(root)[0]) == "2.bin is damaged (hash differs)"


def test_empty_missing_and_longer(proven: tuple[Path, Manifest]) -> None:
    root, manifest = proven
    (root / "0.bin").write_bytes(b"")
    (root / "1.bin").unlink()
    with (root / "3.bin").open("ab") as stream:
        stream.write(b"x")
    assert manifest.verify(root) == [
        Damage("0.bin", "empty"),
        Damage("1.bin", "missing"),
        Damage("3.bin", "size differs"),
    ]
