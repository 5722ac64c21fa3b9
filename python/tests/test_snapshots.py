"""Snapshots, by both faces."""

from __future__ import annotations

import asyncio
import os
import re

import pytest
from conftest import Namenode

import leasefs
import leasefs.aio
from leasefs import ChangeType


def told(changes: list[leasefs.Change]) -> set[tuple[ChangeType, str, str]]:
    return {(c.type, c.path, c.new_path) for c in changes}


def test_life(fs: leasefs.FileSystem, root: str) -> None:
    snaps, old = fs.snapshots, os.urandom(8 << 20)  # a block
    for name in ("changed", "gone", "moved"):
        fs.write_file(f"{root}/{name}", old)
    fs.mkdir(f"{root}/sub")
    with pytest.raises(leasefs.UnsupportedError):
        snaps.create(root)
    snaps.allow(root)
    snaps.allow(root)
    assert snaps.create(root, "one") == "one"
    with pytest.raises(FileExistsError):
        snaps.create(root, "one")
    with pytest.raises(leasefs.InvalidPathError):
        snaps.create(root, "a/b")
    fs.write_file(f"{root}/changed", b"new", overwrite=True)
    with fs.append(f"{root}/moved") as w:
        w.write(b"more")
    fs.remove(f"{root}/gone")
    fs.rename(f"{root}/moved", f"{root}/sub/there")
    fs.mkdir(f"{root}/made")

    changes = list(snaps.diff(root, "one"))
    assert told(changes) == {
        (ChangeType.MODIFIED, "", ""),
        (ChangeType.MODIFIED, "sub", ""),
        (ChangeType.DELETED, "changed", ""),
        (ChangeType.CREATED, "changed", ""),
        (ChangeType.DELETED, "gone", ""),
        (ChangeType.RENAMED, "moved", "sub/there"),
        (ChangeType.CREATED, "made", ""),
    }
    moved = next(c for c in changes if c.type is ChangeType.RENAMED)
    assert (moved.modified, moved.content, moved.is_dir) == (True, True, False)
    assert {c.path for c in changes if c.is_dir} == {"", "sub", "made"}
    name = snaps.create(root)
    assert re.fullmatch(r"s\d{8}-\d{6}\.\d{3}", name)
    assert told(list(snaps.diff(root, "one", name))) == told(changes)
    assert list(snaps.diff(root, name)) == []
    with pytest.raises(FileNotFoundError):
        next(snaps.diff(root, "none"))

    listed = {s.name: s for s in snaps.ls(root)}
    assert set(listed) == {"one", name}
    assert listed["one"].info.path == f"{root}/.snapshot/one"
    assert listed["one"].info.is_dir
    assert listed["one"].made <= listed[name].made
    held = 2 * len(old)  # changed and gone; moved is longer, and has its blocks still
    assert held <= listed["one"].held < held + (1 << 18)  # with checksums
    assert listed[name].held == 0
    mine = next(d for d in snaps.dirs() if d.info.path == root)
    assert (mine.snapshots, mine.held) == (2, listed["one"].held)
    assert fs.summary(root).snapshot_bytes == mine.held
    for file in ("changed", "gone", "moved"):
        assert fs.read_file(f"{root}/.snapshot/one/{file}") == old
    with pytest.raises(leasefs.ReadOnlyError):
        fs.remove(f"{root}/.snapshot/one/gone")
    assert sorted(i.name for i in fs.listdir(root)) == ["changed", "made", "sub"]

    snaps.rename(root, "one", "two")
    with pytest.raises(FileNotFoundError):
        snaps.rm(root, "one")
    with pytest.raises(leasefs.NotEmptyError):
        snaps.disallow(root)
    with pytest.raises(leasefs.NotEmptyError):
        fs.rmtree(root)
    snaps.rm(root, "two")
    snaps.rm(root, name)
    assert list(snaps.ls(root)) == []
    snaps.disallow(root)
    with pytest.raises(leasefs.UnsupportedError):
        next(snaps.ls(root))


def test_pages(fs: leasefs.FileSystem, root: str) -> None:
    many = 1003
    fs.snapshots.allow(root)
    fs.snapshots.create(root, "0")
    for i in range(many):
        fs.write_file(f"{root}/{i}", b"")
    assert {c.path for c in fs.snapshots.diff(root, "0")} == {"", *map(str, range(many))}
    back = list(fs.snapshots.diff(root, "", "0"))
    assert len(back) == many + 1
    assert {c.type for c in back if c.path} == {ChangeType.DELETED}


def test_rights(shared: Namenode, fs: leasefs.FileSystem, root: str) -> None:
    fs.snapshots.allow(root)
    fs.snapshots.create(root, "s")
    with leasefs.connect(shared.address, user="ann") as ann:
        for refused in (
            lambda: ann.snapshots.allow(root),
            lambda: ann.snapshots.create(root, "t"),
            lambda: ann.snapshots.rename(root, "s", "t"),
            lambda: ann.snapshots.rm(root, "s"),
            lambda: next(ann.snapshots.diff(root, "s")),
        ):
            with pytest.raises(PermissionError):
                refused()
        assert [s.name for s in ann.snapshots.ls(root)] == ["s"]
        assert list(ann.snapshots.dirs()) == []


def test_aio(shared: Namenode) -> None:
    async def main() -> None:
        async with await leasefs.aio.connect(shared.address) as fs:
            snaps = fs.snapshots
            await fs.mkdir("/snapaio")
            await fs.write_file("/snapaio/f", b"old")
            await snaps.allow("/snapaio")
            assert await snaps.create("/snapaio", "s") == "s"
            await fs.write_file("/snapaio/g", b"new")
            assert told([c async for c in snaps.diff("/snapaio", "s")]) == {
                (ChangeType.MODIFIED, "", ""),
                (ChangeType.CREATED, "g", ""),
            }
            await snaps.rename("/snapaio", "s", "t")
            assert [s.name async for s in snaps.ls("/snapaio")] == ["t"]
            assert ("/snapaio", 1) in [(d.info.path, d.snapshots) async for d in snaps.dirs()]
            assert await fs.read_file("/snapaio/.snapshot/t/f") == b"old"
            await snaps.rm("/snapaio", "t")
            await snaps.disallow("/snapaio")
            await fs.rmtree("/snapaio")

    asyncio.run(main())


def test_changes_of_later_releases() -> None:
    assert ChangeType(4242) is ChangeType.UNKNOWN
