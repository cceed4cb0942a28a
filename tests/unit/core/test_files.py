"""Safe writing, manifest, free space and names of sizes, without violence (that is in tests/faults)."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from pdejepa.core import files
from pdejepa.core.errors import DataError, ResourceError
from pdejepa.core.files import Damage, Entry, Manifest


def hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if ".tmp-" in name]


def test_write_aside_replaces_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.hdf5"
    with files.write_aside(target) as temporary:
        temporary.write_text("new")
        assert temporary.parent == target.parent
        assert temporary.name.startswith(".a.hdf5.tmp-")
        assert not list(target.parent.glob("*.hdf5"))
        assert not target.exists()
    assert target.read_text() == "new"
    assert hidden(target.parent) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failed_block_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    (tmp_path / ".b.txt.tmp-1-0000-00000000").write_text("not ours")
    with pytest.raises(error), files.write_aside(target) as temporary:
        temporary.write_text("half")
        raise error
    assert target.read_text() == "old"
    assert hidden(tmp_path) == [".b.txt.tmp-1-0000-00000000"]


def test_a_block_that_writes_nothing_fails_loudly(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), files.write_aside(tmp_path / "a"):
        pass


@pytest.mark.parametrize("name", ["ä" * 120, "x" * 250, "a b\n.txt"])
def test_awkward_names(tmp_path: Path, name: str) -> None:
    files.write_text(tmp_path / name, "text")
    assert (tmp_path / name).read_text() == "text"


def test_new_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        files.write_text(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_write_json_is_deterministic_and_refuses_nan(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a.json", {"b": 1, "a": "ü"})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{"b": 1, "a": "ü"}\n'
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", {"b": float("nan")})
    assert (tmp_path / "a.json").exists()


def test_write_json_gives_a_line_to_what_fits(tmp_path: Path) -> None:
    data = {"short": [1, 2.5, None], "long": [10**9 + n for n in range(12)], "nested": {"a": {"b": "x" * 130}}, "e": {}}
    files.write_json(tmp_path / "a.json", data)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == data
    assert text.splitlines()[:4] == ["{", ' "short": [1, 2.5, null],', ' "long": [', "  1000000000,"]
    assert text.endswith(' "e": {}\n}\n')
    assert max(len(line) for line in text.splitlines() if "x" not in line) <= 120


def test_sha256_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc" * 100_000)
    assert files.sha256_file(tmp_path / "a") == hashlib.sha256(b"abc" * 100_000).hexdigest()


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (999_960, "1.0 MB"),
        (14.2e9, "14.2 GB"),
        (3e15, "3.0 PB"),
    ],
)
def test_human_bytes(n_bytes: float, text: str) -> None:
    assert files.human_bytes(n_bytes) == text


def test_check_free_space(tmp_path: Path) -> None:
    files.check_free_space(tmp_path / "not" / "yet", 1, "this data set")
    with pytest.raises(ResourceError) as caught:
        files.check_free_space(tmp_path / "not" / "yet", 1e18, "this data set")
    text = str(caught.value)
    assert text.startswith("Not enough space: this data set needs about 1000.0 PB, ")
    assert text.endswith("not/yet. Free some space or choose another folder.")


def test_manifest_round_trip(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "b").write_text("b")
    (tmp_path / "a").write_text("")
    manifest = Manifest()
    manifest.add(tmp_path, "d/b")
    manifest.add(tmp_path, "a")
    manifest.write(tmp_path)
    again = Manifest.read(tmp_path)
    assert again.files == manifest.files
    assert again.verify(tmp_path) == []
    stored = json.loads((tmp_path / "manifest.json").read_text())
    assert stored["format_version"] == 1
    assert list(stored["files"]) == ["a", "d/b"]
    assert again.verify(tmp_path, ["nope"]) == [Damage("nope", "not in the manifest")]


@pytest.mark.parametrize(
    "path", ["", ".", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a\\b", "C:x", "a\0b", "a/"]
)
def test_unsafe_paths_are_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        files.safe_relative_path(path)
    entry = {"sha256": "0" * 64, "bytes": 0}
    (tmp_path / "manifest.json").write_text(json.dumps({"format_version": 1, "files": {path: entry}}))
    with pytest.raises(DataError):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "nonsense",
        "[" * 100_000,
        "{}",
        '{"format_version": 0, "files": {}}',
        '{"format_version": true, "files": {}}',
        '{"format_version": 1, "files": []}',
        '{"format_version": 1, "files": {"a": 3}}',
        '{"format_version": 1, "files": {"a": {"sha256": "zz", "bytes": 1}}}',
        '{"format_version": 1, "files": {"a": {"sha256": "' + "0" * 64 + '", "bytes": -1}}}',
    ],
)
def test_damaged_manifest(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(DataError, match="damaged"):
        Manifest.read(tmp_path)


def test_manifest_of_the_future_and_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a finished data set"):
        Manifest.read(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format_version": 2, "files": {}}')
    with pytest.raises(DataError, match="Install a newer one"):
        Manifest.read(tmp_path)


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    entry = Entry("0" * 64, 6)
    damage = Manifest({"link": entry, "pipe": entry, "folder": entry}).verify(root)
    assert [d.reason for d in damage] == ["not a file", "leads outside the folder", "not a file"]
