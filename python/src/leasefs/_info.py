"""What calls answer."""

from __future__ import annotations

import stat
from dataclasses import dataclass

from leasefs.errors import Holder, holder_of
from leasefs.v1 import leasefs_pb2 as pb

_FORMATS = {pb.FILE_TYPE_DIRECTORY: stat.S_IFDIR, pb.FILE_TYPE_SYMLINK: stat.S_IFLNK}


@dataclass(frozen=True, slots=True)
class OpenState:
    """Who writes a file. Times are in seconds."""

    holder: Holder
    token: int  # the fencing token of this opening
    idle: float  # how long since its lease was renewed
    takeable_in: float  # how long until another may take the file
    soft_expired: bool  # another gets it who asks


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file, directory or symbolic link."""

    path: str
    name: str
    inode: int
    mode: int  # with the type, as in os.stat_result.st_mode
    user: str
    group: str
    mtime: float  # seconds since the epoch, to the millisecond
    size: int  # bytes of a file
    link_target: str  # of a symbolic link
    open: OpenState | None  # while the file is open for write
    lease: int  # the granted lease that it is attached to; 0: none
    entries: int  # of a directory

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)


def file_info(path: str, a: pb.Attr) -> FileInfo:
    """What the wire says of a file."""
    opened = None
    if a.HasField("open"):
        o = a.open
        opened = OpenState(
            holder_of(o.holder), o.epoch, o.lease_idle_ms / 1000, o.takeable_in_ms / 1000, o.soft_expired
        )
    return FileInfo(
        path=path,
        name=path.rpartition("/")[2],
        inode=a.inode,
        mode=a.mode | _FORMATS.get(a.type, stat.S_IFREG),
        user=a.user,
        group=a.group,
        mtime=a.mtime_unix_ms / 1000,
        size=a.length,
        link_target=a.link_target,
        open=opened,
        lease=a.lease,
        entries=a.entries,
    )


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of a file that was recovered."""

    was_open: bool  # False: it was closed already
    length: int  # bytes of the file
    token: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What is below a path."""

    files: int
    directories: int
    symlinks: int
    length: int  # bytes of files
    stored: int  # bytes in the block store and in tails
    open_files: int
    snapshot_bytes: int  # of what only snapshots have; in none of the others
    trash_bytes: int  # of files in the trash that were deleted there; neither, and counted within seconds
