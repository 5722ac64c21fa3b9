"""A file system for fsspec: ``leasefs://HOST:PORT/path``.

    import pandas as pd

    pd.read_parquet("leasefs://127.0.0.1:8020/tables/a.parquet")

Several namenodes have commas between them. ``leasefs:///path`` asks those that the storage option
``namenodes``, or the environment variable ``LEASEFS_NAMENODE``, names. All other storage options are
arguments of :func:`leasefs.connect`.

A file that is opened with ``w`` or ``x``, or written whole, gets its name when it is closed. The ``with``
of ``fs.open(path, "wb")`` drops it after an exception; that of ``fsspec.open`` closes it. ``a`` appends to
the file itself, under its lease.
"""

from __future__ import annotations

import datetime
import inspect
import io
import os
from collections.abc import AsyncIterator
from typing import Any

from fsspec.asyn import AsyncFileSystem as FsspecFileSystem
from fsspec.asyn import sync

from leasefs._core import Core
from leasefs._info import FileInfo
from leasefs._sync import FileSystem, Reader, Writer, connect
from leasefs.aio import AsyncFileSystem, AsyncReader
from leasefs.errors import ClosedError, ExistsError, NotFoundError, UnsupportedError

_PIECE = 4 << 20
_OPTIONS = frozenset(inspect.signature(connect).parameters)
_READ_BUFFER = 256 << 10


class _Buffered(io.BufferedReader):
    """What fsspec's callers expect of a file that is read: its size."""

    def __init__(self, raw: Reader, buffer_size: int) -> None:
        super().__init__(raw, buffer_size)
        self.size = raw.size


class _Transacted(Writer):
    """A file of a transaction of fsspec: it is published by commit, not by close."""

    _commits = False
    _dropped = False  # by the end of the connection

    def close(self) -> None:
        """Waits for commit or discard."""

    def commit(self) -> None:
        """Gives the file its name."""
        if self._dropped:
            raise ClosedError("the connection was closed before", op="create", path=self.name)
        self._commits = True
        super().close()

    def discard(self) -> None:
        """Drops the file."""
        self.abort()

    async def _end(self) -> None:
        if self._commits:
            await super()._end()
            return
        self._dropped = True
        await self._drop()


class _Connection(AsyncFileSystem):
    """A second face of a FileSystem, whose end is the end of both."""

    def __del__(self) -> None:
        """Closes nothing: files of the FileSystem may be open yet."""


class LeasefsFileSystem(FsspecFileSystem):  # type: ignore[misc]
    """What :class:`leasefs.FileSystem` does, as fsspec has it."""

    protocol = "leasefs"
    root_marker = "/"
    cachable = True
    mirror_sync_methods = True

    def __init__(self, namenodes: str | None = None, **options: Any) -> None:
        ours = {k: options.pop(k) for k in list(options) if k in _OPTIONS}
        super().__init__(namenodes=namenodes, **ours, **options)
        self._files = connect(namenodes, **ours)
        self._connection = _Connection(self._files._loop, self._files._core)
        self._namenodes = ",".join(self._core.config.namenodes)

    @property
    def _core(self) -> Core:
        return self._files._core

    @property
    def files(self) -> FileSystem:
        """The connection itself, for what fsspec has no word for: flushes, leases, locks."""
        return self._files

    @property
    def fsid(self) -> str:
        """The namespace's own name."""
        return f"leasefs-{self._files.namespace_id}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        text = os.fspath(path)
        if text.startswith("leasefs://"):
            text = "/" + text[len("leasefs://") :].partition("/")[2]
        return "/" + text.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        rest = path.partition("leasefs://")[2] if path.startswith("leasefs://") else ""
        hosts = rest.partition("/")[0]
        return {"namenodes": hosts} if hosts else {}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        return f"leasefs://{self._namenodes}{self._strip_protocol(name)}"

    # --- the tree ---

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        return _entry(await self._connection.stat(self._strip_protocol(path)))

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        i = await self._connection.stat(path)
        infos = [i] if not i.is_dir else [e async for e in self._connection.listdir(path)]
        return [_entry(e) for e in infos] if detail else [e.path for e in infos]

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            parent = path.rpartition("/")[0]
            if parent:
                await self._connection.mkdir(parent, parents=True)
        await self._connection.mkdir(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if not exist_ok and await self._connection.exists(path):
            raise ExistsError("it exists already", op="mkdir", path=path)
        await self._connection.mkdir(path, parents=True)

    async def _rm_file(self, path: str, **_: Any) -> None:
        await self._connection.remove(self._strip_protocol(path))

    async def _rmdir(self, path: str) -> None:
        await self._connection.rmdir(self._strip_protocol(path))

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        sync(self.loop, self._rmdir, path)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        paths = self._as_list(path)
        if not recursive or maxdepth is not None:  # what is deeper stays, with the directories above it
            for p in reversed(await self._expand_path(paths, recursive=recursive, maxdepth=maxdepth)):
                await self._connection.remove(p)
            return
        for p in paths:
            if "*" in p or "?" in p or "[" in p:
                for found in await self._glob(p):
                    await self._connection.rmtree(found)
            else:
                await self._connection.rmtree(p)  # in one step

    def _as_list(self, path: Any) -> list[str]:
        stripped = self._strip_protocol(path)
        return [stripped] if isinstance(stripped, str) else list(stripped)

    async def _mv_file(self, path1: str, path2: str, **_: Any) -> None:
        await self._connection.rename(self._strip_protocol(path1), self._strip_protocol(path2), overwrite=True)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Renames a file or directory: no byte is moved. Several paths are copied and removed."""
        if maxdepth is not None or isinstance(path1, list) or isinstance(path2, list) or _magic(os.fspath(path1)):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if os.fspath(path2).endswith("/") or self.isdir(target):
            target = f"{target.rstrip('/')}/{source.rpartition('/')[2]}"
        if target == source:
            return
        try:
            sync(self.loop, self._mv_file, source, target)
        except NotFoundError:
            self._files.lstat(source)  # if this is not what is missing
            self.makedirs(target.rpartition("/")[0] or "/", exist_ok=True)
            sync(self.loop, self._mv_file, source, target)

    def modified(self, path: str) -> datetime.datetime:
        """When the file was written last."""
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.UTC)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        """Makes an empty file; without truncate one that exists gets another modification time."""
        path = self._strip_protocol(path)
        if not truncate and self.exists(path):
            self._files.utime(path)
        else:
            self._files.write_file(path, b"", overwrite=True, parents=True)

    # --- contents ---

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return await self._connection.read_file(self._strip_protocol(path), start or 0, end)

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        await self._connection.write_file(self._strip_protocol(path), value, overwrite=mode != "create", parents=True)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if (await self._connection.stat(source)).is_dir:
            await self._connection.mkdir(target, parents=True)
            return
        async with await self._connection.open(source) as r:
            await self._whole(target, _pieces_of(r), overwrite=True)

    async def _put_file(self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **_: Any) -> None:
        target = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            await self._connection.mkdir(target, parents=True)
            return
        with open(lpath, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            if callback is not None:
                callback.set_size(size)
            if size <= _PIECE:  # in one call, if it is small
                data = f.read()
                await self._connection.write_file(target, data, overwrite=mode != "create", parents=True)
                if callback is not None:
                    callback.relative_update(len(data))
                return

            async def pieces() -> AsyncIterator[bytes]:
                while piece := f.read(_PIECE):
                    yield piece
                    if callback is not None:
                        callback.relative_update(len(piece))

            await self._whole(target, pieces(), overwrite=mode != "create")

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = None, **_: Any) -> None:
        source = self._strip_protocol(rpath)
        if (await self._connection.stat(source)).is_dir:
            os.makedirs(lpath, exist_ok=True)
            return
        async with await self._connection.open(source) as r:
            if callback is not None:
                callback.set_size(r.size)
            parent = os.path.dirname(lpath)
            if parent:
                os.makedirs(parent, exist_ok=True)
            with open(lpath, "wb") as f:
                async for piece in _pieces_of(r):
                    f.write(piece)
                    if callback is not None:
                        callback.relative_update(len(piece))

    async def _whole(self, path: str, pieces: AsyncIterator[bytes], *, overwrite: bool) -> None:
        """Makes a file of pieces, whole or not at all."""
        run = self._connection._run
        w = await run(self._core.begin_whole(path, overwrite=overwrite, parents=True))
        try:
            async for piece in pieces:
                await run(w.writer.write(bytearray(piece)))
            await run(w.publish())
        except BaseException:
            await run(w.discard())
            raise

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        **_: Any,
    ) -> io.IOBase:
        path = self._strip_protocol(path)
        if mode == "rb":
            raw = self._files.open(path, "rb", buffering=0)
            return _Buffered(raw, block_size if block_size and block_size > 1 else _READ_BUFFER)
        if mode == "ab":
            if not autocommit:
                raise UnsupportedError("a transaction of fsspec cannot append", op="open", path=path)
            return self._files.append(path, create=True, parents=True)
        if mode not in ("wb", "xb"):
            raise UnsupportedError(f"the mode {mode!r}: give rb, wb, xb or ab", op="open", path=path)
        whole = self._files._loop.run(self._core.begin_whole(path, overwrite=mode == "wb", parents=True))
        return (Writer if autocommit else _Transacted)(self._files, whole.writer, whole)


def _magic(path: str) -> bool:
    return any(c in path for c in "*?[")


async def _pieces_of(r: AsyncReader) -> AsyncIterator[bytes]:
    while piece := await r.read(_PIECE):
        yield piece


def _entry(i: FileInfo) -> dict[str, Any]:
    kind = "directory" if i.is_dir else "link" if i.is_symlink else "file"
    entry: dict[str, Any] = {
        "name": i.path,
        "size": i.size,
        "type": kind,
        "mtime": i.mtime,
        "mode": i.mode,
        "user": i.user,
        "group": i.group,
        "ino": i.inode,
    }
    if i.is_symlink:
        entry["destination"] = i.link_target
    return entry
