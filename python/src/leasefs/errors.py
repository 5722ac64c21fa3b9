"""What goes wrong: one class for each kind of error that the namenode knows.

Each is an ``OSError`` with an ``errno``, and where Python has a class of its own for the
case (``FileNotFoundError``, ``PermissionError``, …) it is one of these, too.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any, ClassVar

from leasefs.v1 import leasefs_pb2 as pb


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a file open for write. Times are in seconds."""

    user: str
    client: str
    host: str
    pid: int
    since: float  # how long it has held the file
    idle: float  # how long since its lease was renewed


class LeasefsError(OSError):
    """The base of all errors of leasefs, and a fault that fits no other class.

    ``holder`` is who has the file (``HeldError``), or who has it now (``LeaseLostError``).
    ``takeable_in`` and ``retry_after`` are seconds, ``length`` the file's true length in
    bytes (``NotAtEndError``). What does not apply is ``None``, empty or 0.
    """

    kind: ClassVar[str] = "INTERNAL"
    code: ClassVar[int] = errno.EIO

    def __init__(
        self,
        message: str = "",
        *,
        op: str = "",
        path: str = "",
        reason: str = "",
        holder: Holder | None = None,
        takeable_in: float = 0.0,
        retry_after: float = 0.0,
        length: int = 0,
        active: str = "",
    ) -> None:
        super().__init__()
        self.op = op
        self.path = path
        self.message = message
        self.reason = reason
        self.holder = holder
        self.takeable_in = takeable_in
        self.retry_after = retry_after
        self.length = length
        self.active = active
        self.errno = self.code
        self.strerror = self.cause()
        self.filename = path or None

    def cause(self) -> str:
        """The text without operation and path."""
        return self.message or self.kind.lower().replace("_", " ")

    def __str__(self) -> str:
        where = " ".join(part for part in (self.op, self.path) if part)
        text = f"{where}: {self.cause()}" if where else self.cause()
        if self.retry_after > 0:
            text += f" (try again in {_seconds(self.retry_after)})"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self._fields()))

    def _fields(self) -> dict[str, Any]:
        return {
            "message": self.message,
            "op": self.op,
            "path": self.path,
            "reason": self.reason,
            "holder": self.holder,
            "takeable_in": self.takeable_in,
            "retry_after": self.retry_after,
            "length": self.length,
            "active": self.active,
        }

    def within(self, op: str, path: str) -> LeasefsError:
        """A copy that names operation and path where this one names none."""
        fields = self._fields()
        fields["op"] = self.op or op
        fields["path"] = self.path or path
        copy = type(self)(**fields)
        copy.__cause__ = self.__cause__
        return copy


def told(e: Exception) -> LeasefsError:
    """An error of any kind as one of leasefs."""
    if isinstance(e, LeasefsError):
        return e
    ours = LeasefsError(repr(e))
    ours.__cause__ = e
    return ours


def _rebuild(cls: type[LeasefsError], fields: dict[str, Any]) -> LeasefsError:
    return cls(**fields)


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    return f"{seconds:.1f}s" if seconds < 10 else f"{round(seconds)}s"


class InvalidPathError(LeasefsError, ValueError):
    """A path that is relative, or has an empty name, ".", "..", NUL, or what is no UTF-8."""

    kind, code = "INVALID_PATH", errno.EINVAL


class NameTooLongError(LeasefsError):
    """A name over 255 bytes, or a path over 32,768 bytes or 1,024 names."""

    kind, code = "NAME_TOO_LONG", errno.ENAMETOOLONG


class InvalidArgumentError(LeasefsError, ValueError):
    """A request that can never succeed as it is."""

    kind, code = "INVALID_ARGUMENT", errno.EINVAL


class NotFoundError(LeasefsError, FileNotFoundError):
    """No such file, directory, attribute or lease."""

    kind, code = "NOT_FOUND", errno.ENOENT


class ExistsError(LeasefsError, FileExistsError):
    """The name is taken."""

    kind, code = "EXISTS", errno.EEXIST


class IsDirectoryError(LeasefsError, IsADirectoryError):
    """A file was needed."""

    kind, code = "IS_A_DIRECTORY", errno.EISDIR


class NotDirectoryError(LeasefsError, NotADirectoryError):
    """A directory was needed."""

    kind, code = "NOT_A_DIRECTORY", errno.ENOTDIR


class NotEmptyError(LeasefsError):
    """A directory with entries, and no recursion asked for."""

    kind, code = "NOT_EMPTY", errno.ENOTEMPTY


class PermissionDeniedError(LeasefsError, PermissionError):
    """The caller may not, or has not proven who he is."""

    kind, code = "PERMISSION", errno.EACCES


class HeldError(LeasefsError):
    """Another has the file open for write: ``holder``, until ``takeable_in`` at least."""

    kind, code = "HELD", errno.EBUSY

    def cause(self) -> str:
        """The text without operation and path."""
        h = self.holder
        if h is None:
            return super().cause()
        text = f"held by {h.client} (host {h.host}, pid {h.pid}) for {_seconds(h.since)}, idle {_seconds(h.idle)}; "
        if self.message:  # it is not a file that could be recovered
            return text + self.message
        return text + (f"can be taken in {_seconds(self.takeable_in)}" if self.takeable_in > 0 else "can be taken now")


class LeaseLostError(LeasefsError):
    """The writer is not the file's writer any more; ``holder`` is who has it now, if known."""

    kind, code = "LEASE_LOST", errno.ESTALE


class LeaseLostGoneError(LeaseLostError):
    """The file was deleted or replaced under its writer."""


class NotAtEndError(LeasefsError):
    """A write elsewhere than at the end of the file, which is ``length`` bytes long."""

    kind, code = "NOT_AT_END", errno.EOPNOTSUPP


class RetryError(LeasefsError):
    """The namenode cannot now, but will later: safe mode, overload."""

    kind, code = "RETRY", errno.EAGAIN


class NoSpaceError(LeasefsError):
    """Disk, memory or a quota is used up; deleting helps."""

    kind, code = "NO_SPACE", errno.ENOSPC


class NotActiveError(LeasefsError):
    """The namenode that answered is a standby."""

    kind, code = "NOT_ACTIVE", errno.EAGAIN


class UnavailableError(LeasefsError, ConnectionError):
    """No active namenode, or no block store, answered in time."""

    kind, code = "UNAVAILABLE", errno.EIO


class DamagedError(LeasefsError):
    """Stored bytes are not what was written."""

    kind, code = "DAMAGED", errno.EIO


class CanceledError(LeasefsError):
    """The caller gave up."""

    kind, code = "CANCELED", errno.EINTR


class DeadlineError(LeasefsError, TimeoutError):
    """The caller's time ran out."""

    kind, code = "DEADLINE", errno.ETIMEDOUT


class TooLargeError(LeasefsError):
    """A message, file or list over its limit."""

    kind, code = "TOO_LARGE", errno.EFBIG


class LoopError(LeasefsError):
    """Too many symbolic links in a path."""

    kind, code = "LOOP", errno.ELOOP


class UnsupportedError(LeasefsError):
    """What this file system, or this process, does not do."""

    kind, code = "UNSUPPORTED", errno.EOPNOTSUPP


class ClosedError(LeasefsError, ValueError):
    """The writer, reader or file system was closed before."""

    kind, code = "CLOSED", errno.EBADF


class UnknownOutcomeError(LeasefsError):
    """Whether the call happened is not known."""

    kind, code = "UNKNOWN", errno.EIO


class TooOldError(LeasefsError):
    """What was asked for is not kept any more; start over."""

    kind, code = "TOO_OLD", errno.ESTALE


class TruncatedError(LeasefsError):
    """The file was shortened while it was read: read it again from the beginning."""

    kind, code = "TRUNCATED", errno.ESTALE


class CompareFailedError(LeasefsError):
    """A compare of a transaction does not hold; nothing was done."""

    kind, code = "COMPARE_FAILED", errno.ECANCELED


class ReadOnlyError(LeasefsError):
    """It is in a snapshot, where nothing can be changed."""

    kind, code = "READ_ONLY", errno.EROFS


# By the numbers of the wire: fserror.Kind.
_KINDS: tuple[type[LeasefsError], ...] = (
    LeasefsError,
    InvalidPathError,
    NameTooLongError,
    InvalidArgumentError,
    NotFoundError,
    ExistsError,
    IsDirectoryError,
    NotDirectoryError,
    NotEmptyError,
    PermissionDeniedError,
    HeldError,
    LeaseLostError,
    LeaseLostGoneError,
    NotAtEndError,
    RetryError,
    NoSpaceError,
    NotActiveError,
    UnavailableError,
    DamagedError,
    CanceledError,
    DeadlineError,
    TooLargeError,
    LoopError,
    UnsupportedError,
    ClosedError,
    UnknownOutcomeError,
    TooOldError,
    TruncatedError,
    CompareFailedError,
    ReadOnlyError,
)


def transient(e: BaseException) -> bool:
    """Whether the same call may succeed if it is tried again."""
    return isinstance(e, UnavailableError | RetryError | DeadlineError | NotActiveError)


def holder_of(h: pb.HolderInfo) -> Holder:
    """A holder as the wire has it."""
    return Holder(h.user, h.client, h.host, h.pid, h.since_ms / 1000, h.idle_ms / 1000)


def from_detail(d: pb.ErrorDetail) -> LeasefsError:
    """The error that a namenode told."""
    cls = _KINDS[d.kind] if d.kind < len(_KINDS) else LeasefsError
    return cls(
        d.message,
        op=d.op,
        path=d.path,
        reason=d.reason,
        holder=holder_of(d.holder) if d.HasField("holder") else None,
        takeable_in=d.takeable_in_ms / 1000,
        retry_after=d.retry_after_ms / 1000,
        length=d.length,
        active=d.active,
    )
