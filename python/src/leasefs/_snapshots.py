"""Snapshots of directories."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from leasefs._config import StrPath
from leasefs._core import Core, clean
from leasefs._info import FileInfo, file_info
from leasefs._names import Call
from leasefs.v1 import leasefs_pb2 as pb

_DIR = ".snapshot"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A directory as it was once; ``info.path`` is where it is read."""

    id: int  # distinct in a namespace, not in the order in which they were made
    name: str
    made: float  # seconds since the epoch by the namenode's clock, to the millisecond
    info: FileInfo  # of the directory as it was
    held: int  # bytes that only snapshots have, and of these this one as the newest


@dataclass(frozen=True, slots=True)
class SnapshotDir:
    """A directory that may have snapshots."""

    info: FileInfo
    snapshots: int  # how many it has
    held: int  # the sum of theirs


class ChangeType(enum.Enum):
    """What became of something."""

    CREATED = pb.SNAPSHOT_CHANGE_TYPE_CREATED
    DELETED = pb.SNAPSHOT_CHANGE_TYPE_DELETED
    MODIFIED = pb.SNAPSHOT_CHANGE_TYPE_MODIFIED
    RENAMED = pb.SNAPSHOT_CHANGE_TYPE_RENAMED
    UNKNOWN = pb.SNAPSHOT_CHANGE_TYPE_UNSPECIFIED  # a namenode of a later release tells of it

    @classmethod
    def _missing_(cls, _value: object) -> ChangeType:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a file, a directory or a link. Paths are relative to the directory that is compared."""

    type: ChangeType
    is_dir: bool
    path: str  # where it was, or where it is if it was created; empty for the directory itself
    new_path: str  # where it is, if it was renamed
    modified: bool  # its content, entries or attributes are others
    content: bool  # of a file that was modified: its bytes are others, not only its attributes
    inode: int


def snapshot_path(directory: str, name: str) -> str:
    """Where a snapshot of a directory is read."""
    return f"{directory.rstrip('/')}/{_DIR}/{name}"


def _follow(path: str) -> pb.Ref:
    return pb.Ref(path=path, how=pb.REF_HOW_FOLLOW_LAST)


class CoreSnapshots:
    """The calls about snapshots."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def _change(self, op: str, path: str, method: str, req: Message) -> pb.MutateResponse:
        c = Call(op, path, mutates=True)
        return await self._core.change(c, f"Namenode/{method}", req, pb.MutateResponse)

    async def allow(self, path: StrPath, *, yes: bool) -> None:
        op = "snapshot allow" if yes else "snapshot disallow"
        at = clean(op, path)
        req = pb.AllowSnapshotsRequest(caller=self._core.caller, at=_follow(at), allow=yes)
        await self._change(op, at, "AllowSnapshots", req)

    async def create(self, path: StrPath, name: str) -> str:
        at = clean("snapshot create", path)
        req = pb.MakeSnapshotRequest(caller=self._core.caller, at=_follow(at), name=name)
        return (await self._change("snapshot create", at, "MakeSnapshot", req)).snapshot

    async def rename(self, path: StrPath, name: str, new_name: str) -> None:
        at = clean("snapshot rename", path)
        req = pb.RenameSnapshotRequest(caller=self._core.caller, at=_follow(at), name=name, new_name=new_name)
        await self._change("snapshot rename", at, "RenameSnapshot", req)

    async def remove(self, path: StrPath, name: str) -> None:
        at = clean("snapshot rm", path)
        req = pb.DeleteSnapshotRequest(caller=self._core.caller, at=_follow(at), name=name)
        await self._change("snapshot rm", at, "DeleteSnapshot", req)

    async def list_page(self, path: StrPath, after: str) -> tuple[list[Snapshot], str]:
        """A page of a directory's snapshots, and after which name to continue, if that is not empty."""
        at = clean("snapshot ls", path)
        req = pb.ListSnapshotsRequest(caller=self._core.caller, at=_follow(at), after=after)
        c = Call("snapshot ls", at)
        r = await self._core.names.do(c, "Namenode/ListSnapshots", req, pb.ListSnapshotsResponse)
        page = [
            Snapshot(s.id, s.name, s.time_unix_ms / 1000, file_info(snapshot_path(at, s.name), s.attr), s.held_bytes)
            for s in r.snapshots
        ]
        return page, r.next

    async def dirs_page(self, start: int) -> tuple[list[SnapshotDir], int]:
        """A page of the directories that may have snapshots, and where to continue, if that is not 0."""
        req = pb.ListSnapshotDirsRequest(caller=self._core.caller, **{"from": start})
        c = Call("snapshot ls", "")
        r = await self._core.names.do(c, "Namenode/ListSnapshotDirs", req, pb.ListSnapshotDirsResponse)
        return [SnapshotDir(file_info(d.path, d.attr), d.snapshots, d.held_bytes) for d in r.dirs], r.next

    async def diff_page(self, path: StrPath, old: str, new: str, cursor: str) -> tuple[list[Change], str]:
        """A page of what changed, and where to continue, if that is not empty."""
        at = clean("snapshot diff", path)
        names: dict[str, Any] = {"from": old, "to": new}  # the one is a word of Python
        req = pb.DiffSnapshotsRequest(caller=self._core.caller, at=_follow(at), cursor=cursor, **names)
        c = Call("snapshot diff", at)
        r = await self._core.names.do(c, "Namenode/DiffSnapshots", req, pb.DiffSnapshotsResponse)
        page = [
            Change(
                type=ChangeType(m.type),
                is_dir=m.of == pb.FILE_TYPE_DIRECTORY,
                path=m.path,
                new_path=m.new_path,
                modified=m.changed or m.type == pb.SNAPSHOT_CHANGE_TYPE_MODIFIED,
                content=m.content,
                inode=m.inode,
            )
            for m in r.changes
        ]
        return page, r.next_cursor
