"""The file system for programs on asyncio: what :mod:`leasefs` has, as coroutines.

    fs = await leasefs.aio.connect("127.0.0.1:8020")
    async with await fs.create("/logs/a", parents=True) as w:
        await w.write(b"a line")
        await w.flush()

Leases are renewed by a thread of the package, so an event loop that is busy, or a task
that blocks it, loses no file. Calls can be made from any event loop. A call that is
cancelled ends before ``CancelledError`` is raised; whether a change happened is then unknown.

Errors, limits and arguments are those of the methods of the same names in
:class:`leasefs.FileSystem`, :class:`leasefs.Writer`, :class:`leasefs.Reader`,
:class:`leasefs.Lock`, :class:`leasefs.GrantedLease` and :class:`leasefs.Snapshots`.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from leasefs._config import StrPath, configure
from leasefs._core import Core, clean
from leasefs._granted import CoreGranted, Granted, grant
from leasefs._info import FileInfo, Recovered, Summary
from leasefs._loop import Loop, loop
from leasefs._reader import CoreReader
from leasefs._snapshots import Change, CoreSnapshots, Snapshot, SnapshotDir
from leasefs._writer import CoreWriter
from leasefs.errors import ClosedError, InvalidArgumentError, LeasefsError, NotFoundError

T = TypeVar("T")

Bytes = bytes | bytearray | memoryview


async def connect(
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
) -> AsyncFileSystem:
    """Connects to a namespace, and opens a session. Arguments as of :func:`leasefs.connect`."""
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
    return AsyncFileSystem(mine, await mine.arun(Core.connect(config)))


class AsyncFileSystem:
    """A namespace as one session of one client sees it. Tasks and event loops can share it."""

    def __init__(self, mine: Loop, core: Core) -> None:
        self._loop = mine
        self._core = core
        mine.register(core)

    def _run(self, coro: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return self._loop.arun(coro)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        with contextlib.suppress(LeasefsError):  # what is raised already counts
            await self._run(self._core.close(commit=False))

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.closed and self._loop.here:
            self._loop.call_soon(core.forget)

    async def close(self) -> None:
        """Closes all open writers with what was written to them, and ends the session. A second call does nothing.

        If writers cannot be closed, the first error is raised when all have been tried; the others are its notes.
        """
        await self._run(self._core.close())

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
    def snapshots(self) -> AsyncSnapshots:
        """The snapshots of directories."""
        return AsyncSnapshots(self)

    async def stat(self, path: StrPath) -> FileInfo:
        """What is at a path; a symbolic link at its end is followed."""
        return await self._run(self._core.stat(path))

    async def lstat(self, path: StrPath) -> FileInfo:
        """``stat`` of a symbolic link itself."""
        return await self._run(self._core.stat(path, follow=False))

    async def exists(self, path: StrPath) -> bool:
        """Whether there is anything at a path."""
        try:
            await self.stat(path)
        except NotFoundError:
            return False
        return True

    async def listdir(self, path: StrPath, *, page: int = 1000) -> AsyncIterator[FileInfo]:
        """The entries of a directory in the order of names, of which it holds a page in memory."""
        at, after, inode, more = clean("list", path), "", 0, True
        while more:
            infos, inode, more = await self._run(self._core.list_page(at, inode, after, page))
            for i in infos:
                yield i
            after = infos[-1].name if infos else ""

    async def walk(self, path: StrPath) -> AsyncIterator[FileInfo]:
        """All that is below a path, directories before what is in them."""
        async for i in self.listdir(path):
            yield i
            if i.is_dir:
                async for below in self.walk(i.path):
                    yield below

    async def summary(self, path: StrPath) -> Summary:
        """How much is at a path and below it."""
        return await self._run(self._core.summary(path))

    async def mkdir(self, path: StrPath, mode: int | None = None, *, parents: bool = False, lease: int = 0) -> None:
        """Makes a directory."""
        await self._run(self._core.mkdir(path, mode, parents=parents, lease=lease))

    async def rename(self, source: StrPath, target: StrPath, *, overwrite: bool = False) -> None:
        """Gives a file or directory another path."""
        await self._run(self._core.rename(source, target, overwrite=overwrite))

    async def remove(self, path: StrPath) -> None:
        """Removes a file, a symbolic link or an empty directory."""
        await self._run(self._core.remove(path))

    async def rmdir(self, path: StrPath) -> None:
        """Removes an empty directory."""
        await self._run(self._core.remove(path, directory=True))

    async def rmtree(self, path: StrPath) -> None:
        """Removes a path with all that is below it, in one step."""
        await self._run(self._core.remove(path, recursive=True))

    async def symlink(self, target: str, path: StrPath) -> None:
        """Makes path a symbolic link to target."""
        await self._run(self._core.symlink(target, path))

    async def readlink(self, path: StrPath) -> str:
        """What a symbolic link points to."""
        return await self._run(self._core.readlink(path))

    async def chmod(self, path: StrPath, mode: int) -> None:
        """Sets the permission bits and the sticky bit."""
        await self._run(self._core.set_attr("chmod", path, mode=mode))

    async def chown(self, path: StrPath, user: str = "", group: str = "") -> None:
        """Sets user and group; an empty one stays."""
        await self._run(self._core.set_attr("chown", path, user=user, group=group))

    async def utime(self, path: StrPath, mtime: float | None = None) -> None:
        """Sets the modification time."""
        await self._run(self._core.set_attr("chtimes", path, mtime=mtime or 0.0))

    async def truncate(self, path: StrPath, length: int) -> None:
        """Cuts a closed file to length bytes."""
        await self._run(self._core.truncate(path, length))

    async def concat(self, target: StrPath, sources: Sequence[StrPath]) -> None:
        """Appends the sources to the target and removes them."""
        await self._run(self._core.concat(target, sources))

    async def xattrs(self, path: StrPath) -> dict[str, bytes]:
        """All extended attributes."""
        return await self._run(self._core.xattrs(path))

    async def set_xattr(self, path: StrPath, name: str, value: bytes) -> None:
        """Makes or replaces an extended attribute."""
        await self._run(self._core.set_xattr(path, name, value))

    async def remove_xattr(self, path: StrPath, name: str) -> None:
        """Removes an extended attribute."""
        await self._run(self._core.set_xattr(path, name, None))

    async def create(
        self,
        path: StrPath,
        *,
        overwrite: bool = False,
        steal: bool = False,
        parents: bool = False,
        mode: int | None = None,
        lease: int = 0,
    ) -> AsyncWriter:
        """Makes a new file and opens it for write."""
        opened = self._core.create(path, overwrite=overwrite, steal=steal, parents=parents, mode=mode, lease=lease)
        return AsyncWriter(self, await self._run(opened))

    async def append(
        self,
        path: StrPath,
        *,
        create: bool = False,
        parents: bool = False,
        wait: float = 0.0,
        expected_length: int | None = None,
        mode: int | None = None,
        lease: int = 0,
    ) -> AsyncWriter:
        """Opens a file for write at its end."""
        opened = self._core.append(
            path,
            create=create,
            parents=parents,
            wait=wait,
            expected_length=expected_length,
            mode=mode,
            lease=lease,
        )
        return AsyncWriter(self, await self._run(opened))

    async def open(self, path: StrPath) -> AsyncReader:
        """Opens a file for reading, as it is now."""
        return AsyncReader(self, await self._run(self._core.open(path)))

    async def write_file(
        self,
        path: StrPath,
        data: Bytes,
        *,
        overwrite: bool = False,
        parents: bool = False,
        mode: int | None = None,
        lease: int = 0,
    ) -> None:
        """Makes a file with the data, whole or not at all."""
        await self._run(
            self._core.write_file(path, bytes(data), overwrite=overwrite, parents=parents, mode=mode, lease=lease)
        )

    async def read_file(self, path: StrPath, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file from start to end, as in a slice, of one moment."""
        return await self._run(self._core.read_file(path, start, end))

    async def recover(self, path: StrPath, *, force: bool = False) -> Recovered:
        """Closes a file that its writer left open, at its flushed length."""
        return await self._run(self._core.recover(path, force=force))

    async def lock(self, path: StrPath, *, wait: float = 0.0) -> AsyncLock:
        """Takes a path as a lock."""
        return AsyncLock(self, await self._run(self._core.lock(path, wait=wait)))

    async def grant(self, ttl: float, *, name: str = "") -> AsyncGrantedLease:
        """Grants a lease, and keeps it alive."""
        return AsyncGrantedLease(self, await self._run(grant(self._core, ttl, name)))

    async def attach(self, lease: int, path: StrPath) -> None:
        """Attaches a file, directory or link to a granted lease, by its id."""
        await self._run(self._core.attach(lease, path))

    async def detach(self, path: StrPath) -> None:
        """Detaches what a path names from its granted lease."""
        await self._run(self._core.detach(path))


class AsyncSnapshots:
    """Makes snapshots of directories, lists them, and tells what was changed since."""

    def __init__(self, fs: AsyncFileSystem) -> None:
        self._fs = fs  # which is to live as long
        self._run = fs._run
        self._core = CoreSnapshots(fs._core)

    async def allow(self, path: StrPath) -> None:
        """Lets a directory have snapshots."""
        await self._run(self._core.allow(path, yes=True))

    async def disallow(self, path: StrPath) -> None:
        """Takes that back."""
        await self._run(self._core.allow(path, yes=False))

    async def create(self, path: StrPath, name: str = "") -> str:
        """Makes a snapshot of a directory as it is now, and returns its name."""
        return await self._run(self._core.create(path, name))

    async def ls(self, path: StrPath) -> AsyncIterator[Snapshot]:
        """The snapshots of a directory in the order of names."""
        after, more = "", True
        while more:
            page, after = await self._run(self._core.list_page(path, after))
            more = after != ""
            for s in page:
                yield s

    async def dirs(self) -> AsyncIterator[SnapshotDir]:
        """The directories that may have snapshots and are yours; of a superuser all."""
        start, more = 0, True
        while more:
            page, start = await self._run(self._core.dirs_page(start))
            more = start != 0
            for d in page:
                yield d

    async def rename(self, path: StrPath, name: str, new_name: str) -> None:
        """Gives a snapshot of a directory another name."""
        await self._run(self._core.rename(path, name, new_name))

    async def rm(self, path: StrPath, name: str) -> None:
        """Deletes a snapshot of a directory."""
        await self._run(self._core.remove(path, name))

    async def diff(self, path: StrPath, old: str, new: str = "") -> AsyncIterator[Change]:
        """What was changed in a directory from one snapshot to another; an empty name is how it is now."""
        cursor, more = "", True
        while more:
            page, cursor = await self._run(self._core.diff_page(path, old, new, cursor))
            more = cursor != ""
            for c in page:
                yield c


class _Held:
    """What a writer and a lock have in common: a file that is open for write."""

    def __init__(self, fs: AsyncFileSystem, core: CoreWriter) -> None:
        self._fs = fs
        self._core = core

    @property
    def token(self) -> int:
        """The fencing token: it grows with each opening of the file."""
        return self._core.epoch

    def remaining(self) -> float:
        """For how many seconds the file is certainly not another's; 0 or less once it may be."""
        return self._core.remaining()

    async def __aenter__(self) -> Self:
        return self

    def __del__(self) -> None:
        if not self._core.closing and not self._fs._loop.over and self._fs._loop.here:
            warnings.warn(
                f"leasefs: {self._core.path} was not closed: what was not flushed is dropped",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
            self._fs._loop.call_soon(self._core.forget)


async def _waited(what: Coroutine[Any, Any, object]) -> None:
    await what


class AsyncWriter(_Held):
    """A file open for write by this client, and by nobody else."""

    @property
    def lost(self) -> LeasefsError | None:
        """Why the lease is known to be lost; None: it is not, though others may take the file: see ``remaining``."""
        return self._core.lost

    async def wait_lost(self) -> LeasefsError:
        """Returns, once the lease is known to be lost, why: await it beside what must not continue then."""
        await self._fs._run(_waited(self._core.on_lost.wait()))
        return self._core.lost or ClosedError("it was closed", path=self._core.path)

    @property
    def name(self) -> str:
        """The path under which it was opened."""
        return self._core.path

    @property
    def inode(self) -> int:
        """The file's number, the same over renames."""
        return self._core.inode

    @property
    def took_over(self) -> bool:
        """Whether the file was taken from another holder, whose flushed bytes are in it."""
        return self._core.took_over

    @property
    def durable(self) -> int:
        """How many bytes of the file are durable."""
        return self._core.durable

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted."""
        return self._core.closing

    def tell(self) -> int:
        """The length of the file with all that was written."""
        return self._core.length + len(self._core.kept)

    async def write(self, data: Bytes) -> int:
        """Appends all of data. It buffers; full blocks are stored in the background.

        An error of a block that was under way is raised here, with the bytes still kept, and the block is
        tried again. A write that is cancelled keeps its bytes, too.
        """
        await self._fs._run(self._core.append(bytearray(data)))
        return len(data)

    async def flush(self) -> None:
        """Returns once all that was written before is durable and visible to readers."""
        await self._fs._run(self._core.flush())

    async def close(self) -> None:
        """Makes all durable, closes the file and gives its lease back. A second call does nothing."""
        if not self._core.closing:
            await self._fs._run(self._core.close())

    async def abort(self) -> None:
        """Closes the file at its flushed length, and drops what was not flushed. A second call does nothing."""
        if not self._core.closing:
            await self._fs._run(self._core.abort())

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        with contextlib.suppress(LeasefsError):  # what is raised already counts
            await self.abort()


class AsyncLock(_Held):
    """A path held as a lock. While it is good, no other client has it."""

    @property
    def lost(self) -> LeasefsError | None:
        """Why another may have the lock; None: none has, or it was released."""
        return self._core.doubt()

    async def wait_lost(self) -> LeasefsError:
        """Returns, once another may have the lock, why: await it beside what must not continue then."""
        return await self._fs._run(self._core.doubtful())

    def check(self) -> None:
        """Raises ``LeaseLostError`` once another may have the lock, or it was released."""
        self._core.check_lock()

    async def release(self) -> None:
        """Gives the lock up. ``LeaseLostError`` if it was lost before. A second call does nothing."""
        if not self._core.closing:
            await self._fs._run(self._core.close())

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as quiet:
            if kind is not None:
                quiet.enter_context(contextlib.suppress(LeasefsError))
            await self.release()


class AsyncReader:
    """A file as it was when it was opened. Each byte was checked against the checksums of its block."""

    def __init__(self, fs: AsyncFileSystem, core: CoreReader) -> None:
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

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.closed

    async def pread(self, length: int, offset: int) -> bytes:
        """The bytes from offset on, fewer only at the end of the file."""
        if offset < 0 or length < 0:
            raise InvalidArgumentError(f"offset {offset} or length {length} is negative", op="read", path=self.name)
        if self.closed:
            raise ClosedError("the reader is closed", op="read", path=self.name)
        return await self._fs._run(self._core.read(offset, length))

    async def read(self, length: int = -1) -> bytes:
        """The next bytes, or all that are left."""
        got = await self.pread(length if length >= 0 else max(self.size - self._pos, 0), self._pos)
        self._pos += len(got)
        return got

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the position of the next read."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._pos, os.SEEK_END: self.size}.get(whence)
        if base is None or base + offset < 0:
            raise InvalidArgumentError(f"there is no position {offset} from {whence}", op="seek", path=self.name)
        self._pos = base + offset
        return self._pos

    def tell(self) -> int:
        """The position of the next read."""
        return self._pos

    async def close(self) -> None:
        """Lets go of what is kept. A second call does nothing."""
        self._fs._loop.call_soon(self._core.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        self._fs._loop.call_soon(self._core.close)


class AsyncGrantedLease(Granted):
    """A granted lease that is kept alive. As a context manager it is revoked at the end."""

    def __init__(self, fs: AsyncFileSystem, core: CoreGranted) -> None:
        super().__init__(core)
        self._fs = fs
        self._done = False

    async def wait_lost(self) -> LeasefsError:
        """Returns, once the lease has ended, or may have, why."""
        return await self._fs._run(self._core.doubtful())

    async def stop(self) -> None:
        """Keeps it alive no longer."""
        self._done = True
        await self._fs._run(self._core.stop())

    async def revoke(self) -> None:
        """Ends it, and deletes all that is attached to it. A second call does nothing."""
        if not self._done:
            self._done = True
            await self._fs._run(self._core.revoke())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as quiet:
            if kind is not None:
                quiet.enter_context(contextlib.suppress(LeasefsError))
            await self.revoke()
