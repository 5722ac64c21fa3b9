"""A client of leasefs, a file namespace in which every file has at most one writer.

    import leasefs

    with leasefs.connect("127.0.0.1:8020") as fs:
        with fs.append("/logs/a", create=True, parents=True, wait=60) as w:
            w.write(b"a line")
            w.flush()  # durable now, and visible to every reader
        print(fs.read_file("/logs/a"))

:mod:`leasefs.aio` has the same for asyncio, :mod:`leasefs.spec` a file system for fsspec.
"""

import os

# With its support of forks, gRPC's asyncio binding has one forked child in ten crash. Without it, a child
# lives, and is told that it cannot use what its parent connected. gRPC looks at this when it is loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from leasefs import errors
from leasefs._info import FileInfo, OpenState, Recovered, Summary
from leasefs._snapshots import Change, ChangeType, Snapshot, SnapshotDir
from leasefs._sync import FileSystem, GrantedLease, Lock, Reader, Snapshots, TextWriter, Writer, connect
from leasefs.errors import (
    CanceledError,
    ClosedError,
    CompareFailedError,
    DamagedError,
    DeadlineError,
    ExistsError,
    HeldError,
    Holder,
    InvalidArgumentError,
    InvalidPathError,
    IsDirectoryError,
    LeasefsError,
    LeaseLostError,
    LeaseLostGoneError,
    LoopError,
    NameTooLongError,
    NoSpaceError,
    NotActiveError,
    NotAtEndError,
    NotDirectoryError,
    NotEmptyError,
    NotFoundError,
    PermissionDeniedError,
    ReadOnlyError,
    RetryError,
    TooLargeError,
    TooOldError,
    TruncatedError,
    UnavailableError,
    UnknownOutcomeError,
    UnsupportedError,
)

__all__ = [
    "CanceledError",
    "Change",
    "ChangeType",
    "ClosedError",
    "CompareFailedError",
    "DamagedError",
    "DeadlineError",
    "ExistsError",
    "FileInfo",
    "FileSystem",
    "GrantedLease",
    "HeldError",
    "Holder",
    "InvalidArgumentError",
    "InvalidPathError",
    "IsDirectoryError",
    "LeaseLostError",
    "LeaseLostGoneError",
    "LeasefsError",
    "Lock",
    "LoopError",
    "NameTooLongError",
    "NoSpaceError",
    "NotActiveError",
    "NotAtEndError",
    "NotDirectoryError",
    "NotEmptyError",
    "NotFoundError",
    "OpenState",
    "PermissionDeniedError",
    "ReadOnlyError",
    "Reader",
    "Recovered",
    "RetryError",
    "Snapshot",
    "SnapshotDir",
    "Snapshots",
    "Summary",
    "TextWriter",
    "TooLargeError",
    "TooOldError",
    "TruncatedError",
    "UnavailableError",
    "UnknownOutcomeError",
    "UnsupportedError",
    "Writer",
    "connect",
    "errors",
]
