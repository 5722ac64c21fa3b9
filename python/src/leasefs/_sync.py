"""The file system for programs with threads."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from leasefs._config import StrPath, configure
from leasefs._core import Core, WholeFile, clean
from leasefs._granted import CoreGranted, Granted, grant
from leasefs._info import FileInfo, Recovered, Summary
from leasefs._loop import Loop, loop
from leasefs._reader import CoreReader
from leasefs._snapshots import Change, CoreSnapshots, Snapshot, SnapshotDir
from leasefs._writer import CoreWriter
from leasefs.errors import ClosedError, InvalidArgumentError, LeasefsError, NotFoundError

_GATHER = 64 << 10  # bytes of small writes that are handed on at once
_PAGE = 1000
_READ_BUFFER = 256 << 10

Bytes = bytes | bytearray | memoryview
R = TypeVar("R")


def connect(
    namenodes: str | Sequence[str] | None = None,
    *,
    user: str | None = None,
    real_user: str | None = None,
    client: str | None = None,
    ttl: float = 0.0,
    timeout: float = 60.0,
    umask: int = 0o022,
    tls: bool = False,
    tls_ca: StrPath | None = None,
    tls_cert: StrPath | None = None,
    tls_key: StrPath | None = None,
    token: str | Callable[[], str] | None = None,
    token_file: StrPath | None = None,
    write_ahead: int = 3,
    read_ahead: int = 2,
) -> FileSystem:
    """Connects to a namespace, and opens a session.

    ``namenodes`` is ``"HOST:PORT,HOST:PORT"`` or a list of them; without it, what the environment
    variable ``LEASEFS_NAMENODE`` says, or 127.0.0.1:8020.

    ``user`` is who asks: by default the login name or, with a token or certificate, whom that names.
    ``real_user`` is who proves it, if that is another, for whom a rule of the namenode lets him act.
    ``client`` is a stable name: a process that comes back under it gets at once the files that an
    earlier, dead one of that name left open.

    ``ttl`` is for how many seconds this session's leases last without renewal before others can take
    a file (0: as the namenode says), ``timeout`` for how many a call is tried while no namenode
    answers, at most 120.

    ``tls`` connects with TLS; so do ``tls_ca`` (PEM file of the authorities that sign namenodes; by
    default those that gRPC knows), ``tls_cert`` and ``tls_key`` (the own certificate). ``token``, or
    that in ``token_file`` (a user and a token, or a token alone; of mode 600; read again each time),
    proves who ``user`` is. If ``token`` is a function, it is called for each call to a namenode, so it
    must return at once.

    A writer needs ``write_ahead + 1`` blocks (of 8 MiB, by default) of memory, a reader that reads
    from front to back ``read_ahead + 1``.
    """
    mine = loop()
    config = configure(
        namenodes,
        user=user,
        real_user=real_user,
        client=client,
        ttl=ttl,
        timeout=timeout,
        umask=umask,
        tls=tls,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        token=token,
        token_file=token_file,
        write_ahead=write_ahead,
        read_ahead=read_ahead,
    )
    return FileSystem(mine, mine.run(Core.connect(config)))


class FileSystem:
    """A namespace as one session of one client sees it. Threads can share it.

    Every method can raise, besides what it names, ``UnavailableError`` (no active namenode answered
    within the timeout), ``RetryError`` (safe mode or overload for as long), ``PermissionDeniedError``,
    ``InvalidPathError``, ``NameTooLongError`` and ``ClosedError``. A call that changes something happens
    at most once, however often it had to be sent. ``KeyboardInterrupt`` ends the call that waits; whether
    a change happened then is not known.
    """

    def __init__(self, mine: Loop, core: Core) -> None:
        self._loop = mine
        self._core = core
        self._writers: weakref.WeakSet[Writer] = weakref.WeakSet()
        self._turn = threading.RLock()  # of the set; a signal handler may interrupt who has it
        mine.register(core)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        for w in self._open_writers():
            w._closed = True
        with contextlib.suppress(LeasefsError):  # what is raised already counts
            self._loop.run(self._core.close(commit=False))

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.closed and self._loop.here:
            self._loop.call_soon(core.forget)

    def close(self) -> None:
        """Closes all open writers with what was written to them, and ends the session. A second call does nothing.

        If writers cannot be closed, the first error is raised when all have been tried; the others are its notes.
        What a wrapper around a Writer has not handed on yet, such as one that compresses, is not in the file.

        A signal handler that interrupts a call of one of the writers cannot close it: ``RuntimeError``, and
        nothing is closed. Have it raise an exception, such as ``SystemExit``, and close what is open after that.
        """
        self._loop.check()
        with contextlib.ExitStack() as held:
            writers = self._open_writers()
            for w in writers:
                held.enter_context(w._lock)  # what is being written comes first
                w._refuse_within()
                held.callback(w._free)
                w._busy = True
            ends = {w._core: w._end for w in writers if not w._closed}
            self._loop.run(self._core.close(ends))

    def _open_writers(self) -> list[Writer]:
        with self._turn:
            return sorted((w for w in self._writers if not w._closed), key=id)  # who locks some has this order

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.closed

    @property
    def user(self) -> str:
        """Who asks."""
        return self._core.caller.user

    @property
    def client(self) -> str:
        """The client's name, by which others see who holds a file."""
        return self._core.caller.client

    @property
    def namespace_id(self) -> str:
        """The namespace's own name."""
        return self._core.session.welcome.namespace_id

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots of directories."""
        return Snapshots(self)

    # --- the tree ---

    def stat(self, path: StrPath) -> FileInfo:
        """What is at a path; a symbolic link at its end is followed. ``NotFoundError``, ``LoopError``."""
        return self._loop.run(self._core.stat(path))

    def lstat(self, path: StrPath) -> FileInfo:
        """``stat`` of a symbolic link itself."""
        return self._loop.run(self._core.stat(path, follow=False))

    def exists(self, path: StrPath) -> bool:
        """Whether there is anything at a path."""
        try:
            self.stat(path)
        except NotFoundError:
            return False
        return True

    def listdir(self, path: StrPath, *, page: int = _PAGE) -> Iterator[FileInfo]:
        """The entries of a directory in the order of names, of which it holds a page in memory.

        Entries made or removed meanwhile may be among them or not. Errors come with the first entry:
        ``NotFoundError``, ``NotDirectoryError``.
        """
        at, after, inode, more = clean("list", path), "", 0, True
        while more:
            infos, inode, more = self._loop.run(self._core.list_page(at, inode, after, page))
            yield from infos
            after = infos[-1].name if infos else ""

    def walk(self, path: StrPath) -> Iterator[FileInfo]:
        """All that is below a path, directories before what is in them. Symbolic links are not followed."""
        for i in self.listdir(path):
            yield i
            if i.is_dir:
                yield from self.walk(i.path)

    def summary(self, path: StrPath) -> Summary:
        """How much is at a path and below it."""
        return self._loop.run(self._core.summary(path))

    def mkdir(self, path: StrPath, mode: int | None = None, *, parents: bool = False, lease: int = 0) -> None:
        """Makes a directory; with ``parents`` missing ones above it, and then one that exists is no error.

        With ``lease`` it is deleted, with all that is in it, when that granted lease ends.
        ``ExistsError``, ``NotFoundError``, ``NotDirectoryError``.
        """
        self._loop.run(self._core.mkdir(path, mode, parents=parents, lease=lease))

    def rename(self, source: StrPath, target: StrPath, *, overwrite: bool = False) -> None:
        """Gives a file or directory another path; with ``overwrite`` a file or empty directory there is replaced.

        A file's writer continues under the new name. ``NotFoundError``, ``ExistsError``.
        """
        self._loop.run(self._core.rename(source, target, overwrite=overwrite))

    def remove(self, path: StrPath) -> None:
        """Removes a file, a symbolic link or an empty directory. A file's writer loses its lease.

        ``NotFoundError``, ``NotEmptyError``.
        """
        self._loop.run(self._core.remove(path))

    def rmdir(self, path: StrPath) -> None:
        """Removes an empty directory. ``NotFoundError``, ``NotDirectoryError``, ``NotEmptyError``."""
        self._loop.run(self._core.remove(path, directory=True))

    def rmtree(self, path: StrPath) -> None:
        """Removes a path with all that is below it, in one step. ``NotFoundError``."""
        self._loop.run(self._core.remove(path, recursive=True))

    def symlink(self, target: str, path: StrPath) -> None:
        """Makes path a symbolic link to target, which need not exist. ``ExistsError``."""
        self._loop.run(self._core.symlink(target, path))

    def readlink(self, path: StrPath) -> str:
        """What a symbolic link points to. ``InvalidArgumentError`` if it is none."""
        return self._loop.run(self._core.readlink(path))

    def chmod(self, path: StrPath, mode: int) -> None:
        """Sets the permission bits and the sticky bit."""
        self._loop.run(self._core.set_attr("chmod", path, mode=mode))

    def chown(self, path: StrPath, user: str = "", group: str = "") -> None:
        """Sets user and group; an empty one stays."""
        self._loop.run(self._core.set_attr("chown", path, user=user, group=group))

    def utime(self, path: StrPath, mtime: float | None = None) -> None:
        """Sets the modification time, in seconds since the epoch. None: now, by the namenode's clock."""
        self._loop.run(self._core.set_attr("chtimes", path, mtime=mtime or 0.0))

    def truncate(self, path: StrPath, length: int) -> None:
        """Cuts a closed file to length bytes, not more than it has. ``HeldError`` if it is open for write."""
        self._loop.run(self._core.truncate(path, length))

    def concat(self, target: StrPath, sources: Sequence[StrPath]) -> None:
        """Appends the sources, closed files, to the target and removes them, without moving a byte."""
        self._loop.run(self._core.concat(target, sources))

    def xattrs(self, path: StrPath) -> dict[str, bytes]:
        """All extended attributes."""
        return self._loop.run(self._core.xattrs(path))

    def set_xattr(self, path: StrPath, name: str, value: bytes) -> None:
        """Makes or replaces an extended attribute: "user." and more, at most 255 bytes; the value at most 12 KiB."""
        self._loop.run(self._core.set_xattr(path, name, value))

    def remove_xattr(self, path: StrPath, name: str) -> None:
        """Removes an extended attribute. ``NotFoundError``."""
        self._loop.run(self._core.set_xattr(path, name, None))

    # --- writing ---

    def create(
        self,
        path: StrPath,
        *,
        overwrite: bool = False,
        steal: bool = False,
        parents: bool = False,
        mode: int | None = None,
        lease: int = 0,
    ) -> Writer:
        """Makes a new file and opens it for write. ``ExistsError`` if the path is taken.

        With ``overwrite`` a file there is replaced: ``HeldError`` if another writes it, unless with ``steal``,
        by which that writer loses it. ``parents`` makes missing directories, ``lease`` attaches the file to a
        granted lease, ``mode`` are the permission bits (without it 0644, or those of the file replaced).
        """
        opened = self._core.create(path, overwrite=overwrite, steal=steal, parents=parents, mode=mode, lease=lease)
        return Writer(self, self._loop.run(opened))

    def append(
        self,
        path: StrPath,
        *,
        create: bool = False,
        parents: bool = False,
        wait: float = 0.0,
        expected_length: int | None = None,
        mode: int | None = None,
        lease: int = 0,
    ) -> Writer:
        """Opens a file for write at its end. ``NotFoundError``, unless with ``create``.

        ``HeldError`` names who has it, after ``wait`` seconds in line at most. A holder past its soft limit is
        replaced in this call: ``Writer.took_over``. With ``expected_length``, ``NotAtEndError`` unless the file
        has just so many bytes: so a writer that resumes appends each record once.
        """
        opened = self._core.append(
            path,
            create=create,
            parents=parents,
            wait=wait,
            expected_length=expected_length,
            mode=mode,
            lease=lease,
        )
        return Writer(self, self._loop.run(opened))

    def write_file(
        self,
        path: StrPath,
        data: Bytes,
        *,
        overwrite: bool = False,
        parents: bool = False,
        mode: int | None = None,
        lease: int = 0,
    ) -> None:
        """Makes a file with the data, whole or not at all; what is replaced is there until it is.

        ``ExistsError``, ``HeldError``.
        """
        self._loop.run(
            self._core.write_file(path, bytes(data), overwrite=overwrite, parents=parents, mode=mode, lease=lease)
        )

    def recover(self, path: StrPath, *, force: bool = False) -> Recovered:
        """Closes a file that its writer left open, at its flushed length.

        A writer that lives loses it only with ``force``: ``HeldError`` otherwise.
        """
        return self._loop.run(self._core.recover(path, force=force))

    def lock(self, path: StrPath, *, wait: float = 0.0) -> Lock:
        """Takes a path as a lock: a file, made if it is missing, that is open for write and not written.

        ``HeldError`` if another has it for longer than ``wait`` seconds; who waits longest is served first.
        """
        return Lock(self, self._loop.run(self._core.lock(path, wait=wait)))

    # --- reading ---

    def read_file(self, path: StrPath, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file from start to end, as in a slice, of one moment."""
        return self._loop.run(self._core.read_file(path, start, end))

    @overload
    def open(self, path: StrPath, mode: Literal["rb"], *, buffering: Literal[0]) -> Reader: ...
    @overload
    def open(self, path: StrPath, mode: Literal["rb"]) -> io.BufferedReader: ...
    @overload
    def open(self, path: StrPath, mode: Literal["wb", "xb", "ab"]) -> Writer: ...
    @overload
    def open(
        self,
        path: StrPath,
        mode: Literal["r", "w", "x", "a", "rt", "wt", "xt", "at"] = ...,
        *,
        buffering: int = ...,
        encoding: str = ...,
        errors: str | None = ...,
        newline: str | None = ...,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(self, path: StrPath, mode: str, *, buffering: int = ...) -> io.IOBase: ...
    def open(
        self,
        path: StrPath,
        mode: str = "r",
        *,
        buffering: int = -1,
        encoding: str = "utf-8",
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.IOBase:
        """Opens a file as Python's ``open`` does: ``r``, ``w`` (replaces), ``x`` (makes), ``a``, with ``b`` or not.

        What reads sees the file as it was at that moment. ``buffering=0`` (with ``rb``) returns a ``Reader``.
        """
        kind, binary = mode.replace("b", "").replace("t", ""), "b" in mode
        if kind not in ("r", "w", "x", "a") or ("b" in mode and "t" in mode):
            raise InvalidArgumentError(f"the mode {mode!r}: give r, w, x or a, with b or without", op="open")
        if kind == "r":
            raw = Reader(self, self._loop.run(self._core.open(path)))
            if binary and buffering == 0:
                return raw
            buffered = io.BufferedReader(raw, buffering if buffering > 1 else _READ_BUFFER)
            return buffered if binary else io.TextIOWrapper(buffered, encoding, errors, newline)
        w = self.append(path, create=True) if kind == "a" else self.create(path, overwrite=kind == "w")
        return w if binary else TextWriter(w, encoding, errors, newline)

    # --- granted leases ---

    def grant(self, ttl: float, *, name: str = "") -> GrantedLease:
        """Grants a lease, and keeps it alive until it is stopped or revoked, or this process ends.

        When it ends, all that is attached to it is deleted in one step. ``ttl`` is for how many seconds it
        lives on when nobody keeps it alive; the namenode has a minimum.
        """
        return GrantedLease(self, self._loop.run(grant(self._core, ttl, name)))

    def attach(self, lease: int, path: StrPath) -> None:
        """Attaches a file, directory or link to a granted lease, by its id. ``NotFoundError``."""
        self._loop.run(self._core.attach(lease, path))

    def detach(self, path: StrPath) -> None:
        """Detaches what a path names from its granted lease, so that it stays."""
        self._loop.run(self._core.detach(path))


class Snapshots:
    """Makes snapshots of directories, lists them, and tells what was changed since.

    A snapshot is a directory with all that is below it, as it was at one moment. It costs nothing to
    make, and is read at ``DIR/.snapshot/NAME``, by the calls for files. A superuser allows a directory
    to have some; its owner makes, renames and deletes them. While it has some, it cannot be deleted.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs  # which is to live as long
        self._loop = fs._loop
        self._core = CoreSnapshots(fs._core)

    def allow(self, path: StrPath) -> None:
        """Lets a directory have snapshots. ``PermissionDeniedError`` if you are no superuser."""
        self._loop.run(self._core.allow(path, yes=True))

    def disallow(self, path: StrPath) -> None:
        """Takes that back. ``NotEmptyError`` if it has some."""
        self._loop.run(self._core.allow(path, yes=False))

    def create(self, path: StrPath, name: str = "") -> str:
        """Makes a snapshot of a directory as it is now, and returns its name.

        Without a name it has one that tells the time in UTC, such as s20260728-153059.123. A file that is
        open for write is in it as far as it was flushed. ``UnsupportedError`` (it may have none),
        ``ExistsError``, ``NoSpaceError`` (there are too many, or they have too much).
        """
        return self._loop.run(self._core.create(path, name))

    def ls(self, path: StrPath) -> Iterator[Snapshot]:
        """The snapshots of a directory in the order of names. Errors come with the first one."""
        after, more = "", True
        while more:
            page, after = self._loop.run(self._core.list_page(path, after))
            more = after != ""
            yield from page

    def dirs(self) -> Iterator[SnapshotDir]:
        """The directories that may have snapshots and are yours; of a superuser all."""
        start, more = 0, True
        while more:
            page, start = self._loop.run(self._core.dirs_page(start))
            more = start != 0
            yield from page

    def rename(self, path: StrPath, name: str, new_name: str) -> None:
        """Gives a snapshot of a directory another name. ``NotFoundError``, ``ExistsError``."""
        self._loop.run(self._core.rename(path, name, new_name))

    def rm(self, path: StrPath, name: str) -> None:
        """Deletes a snapshot of a directory: what only it has is freed in the background. ``NotFoundError``."""
        self._loop.run(self._core.remove(path, name))

    def diff(self, path: StrPath, old: str, new: str = "") -> Iterator[Change]:
        """What was changed in a directory from one snapshot to another; an empty name is how it is now.

        It is for the directory's owner and superusers. What came or went with a directory is not told of,
        nor what you may not list. Errors come with the first change: ``NotFoundError``.
        """
        cursor, more = "", True
        while more:
            page, cursor = self._loop.run(self._core.diff_page(path, old, new, cursor))
            more = cursor != ""
            yield from page


class Writer(io.BufferedIOBase):
    """A file open for write by this client, and by nobody else.

    Bytes are appended at the end of the file. They are durable, and readers see them, once ``flush`` or
    ``close`` has returned. Threads can share it: each write's bytes stay together.

    When the lease is lost (another took the file over, it was recovered or deleted, or no renewal came
    through for the hard limit), each later write, flush and close raises ``LeaseLostError``, which names
    the new holder if the namenode knows one.

    ``FileSystem.close`` closes it, too. A ``with`` block that ends by an exception, and a Writer that is
    collected, or left at the end of the program, without ``close``, drop what was not flushed: the file is
    closed at its flushed length. The latter warns (``ResourceWarning``).
    """

    def __init__(self, fs: FileSystem, core: CoreWriter, whole: WholeFile | None = None) -> None:
        self._fs = fs
        self._core = core
        self._whole = whole
        self._closed = False
        self._gathered = bytearray()
        self._lock = threading.RLock()
        self._busy = False  # who has the lock is within a call
        with fs._turn:
            fs._writers.add(self)

    @property
    def name(self) -> str:
        """The path under which it was opened. A rename does not disturb the Writer."""
        return self._core.path

    @property
    def inode(self) -> int:
        """The file's number, the same over renames."""
        return self._core.inode

    @property
    def token(self) -> int:
        """The fencing token: it grows with each opening of the file."""
        return self._core.epoch

    @property
    def took_over(self) -> bool:
        """Whether the file was taken from another holder, whose flushed bytes are in it."""
        return self._core.took_over

    @property
    def lost(self) -> LeasefsError | None:
        """Why the lease is known to be lost; None: it is not, though others may take the file: see ``remaining``."""
        return self._core.lost

    @property
    def durable(self) -> int:
        """How many bytes of the file are durable."""
        return self._core.durable

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted."""
        return self._closed

    def remaining(self) -> float:
        """For how many seconds the file is certainly not another's; 0 or less once it may be."""
        return self._core.remaining()

    def writable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """False: files grow at their end."""
        return False

    def tell(self) -> int:
        """The length of the file with all that was written."""
        return self._alone(lambda: self._core.length + len(self._gathered))

    def write(self, data: Any, /) -> int:
        """Appends all of data. It buffers; full blocks are stored in the background.

        An error of a block that was under way is raised here, with the bytes still kept, and the block is
        tried again.
        """
        with memoryview(data) as view:
            return self._alone(lambda: self._write(view))

    def _write(self, view: memoryview) -> int:
        self._check("write")
        n = view.nbytes
        self._gathered += view.cast("B") if n else b""
        if len(self._gathered) >= _GATHER:
            self._fs._loop.run(self._core.write(self._gathered))
        return n

    def flush(self) -> None:
        """Returns once all that was written before is durable and visible to readers."""
        self._alone(self._hand_on)
        self._fs._loop.run(self._core.flush())

    def _hand_on(self) -> None:
        if self._closed:
            raise ClosedError("the writer is closed", op="flush", path=self.name)
        if self._gathered:
            self._fs._loop.run(self._core.write(self._gathered))

    def close(self) -> None:
        """Makes all durable, closes the file and gives its lease back. A second call does nothing.

        The Writer is done with, whatever is raised: what could not be made durable is not in the file then.
        """
        self._alone(lambda: None if self._closed else self._fs._loop.run(self._end()))

    async def _end(self) -> None:
        """Closes it. The Writer is done with from when this runs: if an interrupt comes before, it has its bytes."""
        self._closed = True
        last, self._gathered = self._gathered, bytearray()
        await (self._core.close(last) if self._whole is None else self._whole.publish(last))

    def abort(self) -> None:
        """Closes the file at its flushed length, and drops what was not flushed. A second call does nothing."""
        self._alone(lambda: None if self._closed else self._fs._loop.run(self._drop()))

    async def _drop(self) -> None:
        self._closed = True
        self._gathered = bytearray()
        await (self._core.abort() if self._whole is None else self._whole.discard())

    def _alone(self, call: Callable[[], R]) -> R:
        """One call at a time."""
        with self._lock:
            self._refuse_within()
            self._busy = True
            try:
                return call()
            finally:
                self._busy = False

    def _refuse_within(self) -> None:
        """Raises in a signal handler that interrupted a call of this thread, which it would wait for forever."""
        if self._busy:
            raise RuntimeError(
                f"a signal handler cannot use the writer of {self.name} within the call that it interrupted"
            )

    def _free(self) -> None:
        self._busy = False

    def __enter__(self) -> Self:
        self._check("open")
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(LeasefsError):  # what is raised already counts
            self.abort()

    def __del__(self) -> None:
        fs = getattr(self, "_fs", None)
        if fs is None or self._closed or fs._loop.over or not fs._loop.here:
            return
        warnings.warn(
            f"leasefs: the writer of {self.name} was not closed: what was not flushed is dropped",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        fs._loop.call_soon((self._whole or self._core).forget)

    def _check(self, op: str) -> None:
        if self._closed or self._core.closing:
            raise ClosedError("the writer is closed", op=op, path=self.name)
        if self._core.lost is not None:
            raise self._core.lost.within(op, self.name)


class TextWriter(io.TextIOWrapper):
    """A Writer of text, with the same rules for its end."""

    def __init__(self, w: Writer, encoding: str, errors: str | None, newline: str | None) -> None:
        # The Writer gathers, and it alone is known to the FileSystem, which closes it.
        super().__init__(w, encoding, errors, newline, write_through=True)
        self._writer = w

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            with contextlib.suppress(LeasefsError):
                self._writer.abort()
            return
        self.close()

    def __del__(self) -> None:
        """Closes nothing: the Writer says so, and drops what was not flushed."""


class Reader(io.RawIOBase):
    """A file as it was when it was opened: later appends do not show, and a rename does not disturb it.

    Each byte was checked against the checksums of its block: ``DamagedError`` otherwise. If the file is
    truncated meanwhile, what cannot be read of what was opened is a ``TruncatedError``. Threads can share
    ``pread``; ``read`` and ``seek`` share one position.
    """

    def __init__(self, fs: FileSystem, core: CoreReader) -> None:
        self._fs = fs
        self._core = core
        self._pos = 0

    @property
    def name(self) -> str:
        """The path under which it was opened."""
        return self._core.path

    @property
    def size(self) -> int:
        """The length of the file in bytes."""
        return self._core.length

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def pread(self, length: int, offset: int) -> bytes:
        """The bytes from offset on, fewer only at the end of the file."""
        if offset < 0 or length < 0:
            raise InvalidArgumentError(f"offset {offset} or length {length} is negative", op="read", path=self.name)
        if self.closed:
            raise ClosedError("the reader is closed", op="read", path=self.name)
        return self._fs._loop.run(self._core.read(offset, length))

    def readinto(self, buffer: Any, /) -> int:
        """Reads the next bytes, fewer than there is room for only at the end."""
        with memoryview(buffer) as view, view.cast("B") as room:
            got = self.pread(len(room), self._pos)
            room[: len(got)] = got
            self._pos += len(got)
            return len(got)

    def readall(self) -> bytes:
        """The rest of the file."""
        got = self.pread(max(self.size - self._pos, 0), self._pos)
        self._pos += len(got)
        return got

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Sets the position of the next read."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._pos, os.SEEK_END: self.size}.get(whence)
        if base is None or base + offset < 0:
            raise InvalidArgumentError(f"there is no position {offset} from {whence}", op="seek", path=self.name)
        self._pos = base + offset
        return self._pos

    def tell(self) -> int:
        """The position of the next read."""
        return self._pos

    def close(self) -> None:
        """Lets go of what is kept. A second call does nothing."""
        core = getattr(self, "_core", None)
        if core is not None and not self.closed:
            self._fs._loop.call_soon(core.close)
        super().close()


class Lock:
    """A path held as a lock. While it is good, no other client has it.

    A process can be stopped at any time, and continue after its lock has become another's: what must not be
    touched by such a one remembers the largest ``token`` that it has seen, and refuses a smaller one.
    """

    def __init__(self, fs: FileSystem, core: CoreWriter) -> None:
        self._fs = fs
        self._core = core
        self._done = False

    @property
    def token(self) -> int:
        """The fencing token: it grows with each holder of the path."""
        return self._core.epoch

    @property
    def lost(self) -> LeasefsError | None:
        """Why another may have the lock; None: none has, or it was released."""
        return self._core.doubt()

    def remaining(self) -> float:
        """For how many seconds the lock is certainly not another's; 0 or less once it may be."""
        return self._core.remaining()

    def check(self) -> None:
        """Raises ``LeaseLostError`` once another may have the lock, or it was released."""
        self._core.check_lock()

    def release(self) -> None:
        """Gives the lock up. ``LeaseLostError`` if it was lost before. A second call does nothing."""
        if not self._done:
            self._done = True
            self._fs._loop.run(self._core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.ExitStack() as quiet:
            if kind is not None:
                quiet.enter_context(contextlib.suppress(LeasefsError))
            self.release()

    def __del__(self) -> None:
        if not self._done and not self._core.closing and not self._fs._loop.over and self._fs._loop.here:
            warnings.warn(
                f"leasefs: the lock {self._core.path} was not released", ResourceWarning, stacklevel=2, source=self
            )
            self._fs._loop.call_soon(self._core.forget)


class GrantedLease(Granted):
    """A granted lease that is kept alive. As a context manager it is revoked at the end."""

    def __init__(self, fs: FileSystem, core: CoreGranted) -> None:
        super().__init__(core)
        self._fs = fs
        self._done = False

    def stop(self) -> None:
        """Keeps it alive no longer. What is attached to it is deleted when its time is over."""
        self._done = True
        self._fs._loop.run(self._core.stop())

    def revoke(self) -> None:
        """Ends it, and deletes all that is attached to it. A second call does nothing.

        ``NotFoundError`` if it has ended.
        """
        if not self._done:
            self._done = True
            self._fs._loop.run(self._core.revoke())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.ExitStack() as quiet:
            if kind is not None:
                quiet.enter_context(contextlib.suppress(LeasefsError))
            self.revoke()


__all__ = ["FileSystem", "GrantedLease", "Lock", "Reader", "TextWriter", "Writer", "connect"]
