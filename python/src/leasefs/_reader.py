"""A file as it was when it was opened: its blocks, verified, and its tail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from leasefs import _clock, _format
from leasefs._names import Call, backoff
from leasefs._store import ShortError, StoreError
from leasefs.errors import (
    ClosedError,
    DamagedError,
    IsDirectoryError,
    LeasefsError,
    TruncatedError,
    UnavailableError,
)
from leasefs.v1 import leasefs_pb2 as pb

if TYPE_CHECKING:
    from leasefs._core import Core

T = TypeVar("T")

_MAX_PAGES = 32  # pages of a very long file's block list that are remembered
_MAX_TABLES = 128  # checksum tables that are
_MAX_MOVES = 4  # how often the place of a byte is looked up again because it moved
_MAX_REFUSED = 4


@dataclass(frozen=True, slots=True)
class _Block:
    offset: int  # in the file
    used: int  # bytes of it that belong to the file
    data: int  # bytes of data in the object
    stored: int  # bytes of the object
    key: tuple[int, int]
    crc: int
    url: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Page:
    """Part of a file's block list, or its last part with the tail."""

    start: int
    end: int
    blocks: tuple[_Block, ...]
    tail_offset: int
    tail: bytes
    asked: float


class _Fetch:
    """A whole block on its way, or here."""

    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[bytearray]) -> None:
        self.task = task
        self.waiting = 0  # reads that wait for it


class _MovedError(Exception):
    """The file does not have the block where it was."""


class CoreReader:
    """A file open for reading. Later appends do not show, and a rename does not disturb it."""

    def __init__(self, core: Core, path: str, r: pb.GetFileResponse, asked: float) -> None:
        self._core = core
        self.path = path
        self.attr = r.attr
        self.length = r.attr.length
        self._inode = r.attr.inode
        self._cut = r.cut
        self._pages = [self._page_of(r, asked, 0)]
        self._tables: dict[tuple[int, int], list[int]] = {}
        self._held: dict[tuple[int, int], _Fetch] = {}  # whole blocks, the latest last
        self._last_end = 0
        self._in_row = 0
        self.closed = False

    def close(self) -> None:
        """Lets go of all that is kept."""
        self.closed = True
        for f in self._held.values():
            f.task.cancel()
        self._held.clear()
        self._pages.clear()
        self._core.readers.discard(self)

    def forget(self) -> None:
        """Nobody is left who could read."""
        self.close()

    async def read(self, offset: int, length: int) -> bytes:
        """The bytes from offset on, fewer only at the end of the file."""
        sequential = offset == self._last_end
        self._in_row = self._in_row + 1 if sequential else 0
        end = min(offset + length, self.length)
        parts: list[bytes | memoryview] = []
        at = offset
        while at < end:
            part = await self._some(at, end, sequential=self._in_row >= 2)
            parts.append(part)
            at += len(part)
        self._last_end = max(at, offset)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    async def _some(self, offset: int, end: int, *, sequential: bool) -> bytes | memoryview:
        """Bytes from one block, or from the tail."""
        newer = 0.0
        for _ in range(_MAX_MOVES):
            page = await self._page(offset, newer)
            b = _find(page, offset)
            if b is None:
                return page.tail[offset - page.tail_offset : end - page.tail_offset]
            first, last = offset - b.offset, min(end - b.offset, b.used)
            try:
                if sequential or b.key in self._held or (last - first) * 2 > b.data:
                    whole = await self._whole(page, b, ahead=sequential)
                    return memoryview(whole)[first:last]
                return await self._range(b, first, last)
            except _MovedError:
                newer = _clock.now()
        raise UnavailableError(f"the file's blocks keep changing at offset {offset}", op="read", path=self.path)

    # --- the block list ---

    async def _page(self, offset: int, newer: float) -> _Page:
        """The page that has the byte, and is not as old as newer."""
        if self.closed:
            raise ClosedError("the reader is closed", op="read", path=self.path)
        for p in self._pages:
            if p.start <= offset < p.end and (p.asked >= newer or _find(p, offset) is None):
                return p
        asked = _clock.now()
        req = pb.GetFileRequest(caller=self._core.caller, at=pb.Ref(base=self._inode), offset=offset)
        r = await self._core.names.do(Call("read", self.path), "Namenode/GetFile", req, pb.GetFileResponse)
        if r.cut != self._cut:
            raise TruncatedError(
                "the file was truncated while it was read; read it again from the beginning", op="read", path=self.path
            )
        page = self._page_of(r, asked, offset)
        self._pages = [*[p for p in self._pages if not p.start <= offset < p.end][-_MAX_PAGES + 1 :], page]
        return page

    def _page_of(self, r: pb.GetFileResponse, asked: float, offset: int) -> _Page:
        at = r.blocks_offset
        blocks = []
        for b in r.blocks:
            try:
                data = _format.data_length(b.stored_length)
            except ValueError as e:
                raise self._senseless(str(e)) from None
            if not 0 < b.used_length <= data:
                raise self._senseless(f"{b.used_length} bytes of a block of {data}")
            key = (b.term, b.seq)
            blocks.append(_Block(at, b.used_length, data, b.stored_length, key, b.crc32c, b.url, dict(b.headers)))
            at += b.used_length
        start = r.blocks_offset if blocks else offset
        end, tail, tail_offset = at if blocks else offset, None, 0
        if not r.more_blocks:
            tail, tail_offset = r.tail, max(r.tail_offset, offset)
            if tail:
                if _format.crc(tail) != r.tail_crc32c:
                    raise DamagedError(
                        f"the bytes in the file's tail, from offset {tail_offset} on, do not match their checksum",
                        op="read",
                        path=self.path,
                    )
                if blocks and at != tail_offset:
                    raise self._senseless(f"blocks end at {at}, the tail begins at {tail_offset}")
                start = start if blocks else tail_offset
                end = tail_offset + len(tail)
        if offset < min(r.attr.length, self.length) and not start <= offset < end:
            raise self._senseless(f"it has nothing at offset {offset} of a file of {r.attr.length} bytes")
        return _Page(start, end, tuple(blocks), tail_offset, tail or b"", asked)

    def _senseless(self, what: str) -> LeasefsError:
        return LeasefsError(f"the namenode's block list makes no sense: {what}", op="read", path=self.path)

    # --- blocks ---

    async def _whole(self, page: _Page, b: _Block, *, ahead: bool) -> bytearray:
        """A whole block; those after it are begun, too."""
        fetch = self._hold(b)
        keep = {b.key}
        if ahead:
            i = page.blocks.index(b)
            for nxt in page.blocks[i + 1 : i + 1 + self._core.config.read_ahead]:
                if nxt.offset < self.length:
                    self._hold(nxt)
                    keep.add(nxt.key)
        fetch.waiting += 1
        self._let_go(keep)
        try:
            return await asyncio.shield(fetch.task)
        except asyncio.CancelledError:
            if self.closed:
                raise ClosedError("the reader was closed meanwhile", op="read", path=self.path) from None
            raise
        finally:
            fetch.waiting -= 1
            self._let_go(keep)  # there may have been more than its room, for as many reads as wait

    def _let_go(self, keep: set[tuple[int, int]]) -> None:
        """Drops the oldest blocks that are too many. Those that reads wait for stay."""
        for key in [k for k, f in self._held.items() if k not in keep and f.waiting == 0]:
            if len(self._held) <= self._core.config.read_ahead + 1:
                break
            self._held.pop(key).task.cancel()

    def _hold(self, b: _Block) -> _Fetch:
        fetch = self._held.pop(b.key, None)
        if fetch is None:
            fetch = _Fetch(asyncio.create_task(self._fetch_whole(b)))
            fetch.task.add_done_callback(lambda t: self._look_at(b.key, t))
        self._held[b.key] = fetch
        return fetch

    def _look_at(self, key: tuple[int, int], task: asyncio.Task[bytearray]) -> None:
        """An error is of those who wait for the fetch; if nobody does, it is no news. Who comes later tries again."""
        if task.cancelled() or task.exception() is not None:
            fetch = self._held.get(key)
            if fetch is not None and fetch.task is task:
                del self._held[key]

    async def _fetch_whole(self, b: _Block) -> bytearray:
        async def once() -> bytearray:
            whole = await self._get(b, 0, b.stored)

            def check() -> None:
                sums = _format.check_table(bytes(whole[b.data :]), b.data, b.crc)
                _format.check_range(sums, 0, memoryview(whole)[: b.data])

            await self._core.store.run(check)
            return whole

        return await self._verified(b, once)

    async def _range(self, b: _Block, first: int, last: int) -> bytes:
        """Bytes of a block, with no more than the chunks that they are in."""
        start, end = _format.align(b.data, first, last)

        async def once() -> bytes:
            sums = self._tables.get(b.key)
            if sums is None:
                table = bytes(await self._get(b, b.data, b.stored - b.data))
                sums = _format.check_table(table, b.data, b.crc)
                if len(self._tables) >= _MAX_TABLES:
                    self._tables.pop(next(iter(self._tables)))
                self._tables[b.key] = sums
            known = sums
            got = await self._get(b, start, end - start)
            await self._core.store.run(lambda: _format.check_range(known, start, got))
            return bytes(memoryview(got)[first - start : last - start])

        return await self._verified(b, once)

    async def _verified(self, b: _Block, once: Callable[[], Awaitable[T]]) -> T:
        """What does not match its checksum is read once more: the fault may be on the way."""
        try:
            return await once()
        except _format.DamageError:
            pass
        try:
            return await once()
        except _format.DamageError as e:
            raise self._damaged(b, e.offset, str(e)) from None

    def _damaged(self, b: _Block, offset: int, what: str) -> DamagedError:
        return DamagedError(
            f"block {b.key[0]:x}/{b.key[1]:x} is damaged at offset {b.offset + offset} of the file "
            f"({offset} of the block): {what}",
            op="read",
            path=self.path,
        )

    async def _get(self, b: _Block, start: int, length: int) -> bytearray:
        """Downloads part of a block's object."""
        began = _clock.now()
        n = short = refused = 0
        now = b
        while True:
            tried = _clock.now()
            try:
                get = partial(self._core.store.get, now.url, now.headers, start, length, b.stored)
                got = await self._core.store.run(get)
            except ShortError as e:
                short += 1
                if short > 1:
                    raise self._damaged(b, b.data, "the stored object is truncated") from e
                cause: StoreError = e
            except StoreError as e:
                cause = e
                if e.status in (401, 403, 404, 410):
                    found = _find(await self._page(b.offset, tried), b.offset)
                    if found is None or found.key != b.key or found.offset != b.offset:
                        raise _MovedError from e
                    now = found
                    refused += 1
                    if e.status in (404, 410) and refused > 1:
                        raise self._damaged(b, 0, "the block is missing from the block store") from e
                    if refused > _MAX_REFUSED:
                        raise UnavailableError(str(e), op="read", path=self.path) from e
                    continue
                if e.refused:
                    raise LeasefsError(str(e), op="read", path=self.path) from e
            else:
                return got
            pause, limit = backoff(n), self._core.config.timeout
            if _clock.now() - began + pause > limit:
                raise UnavailableError(
                    f"block {b.key[0]:x}/{b.key[1]:x} could not be read within {limit:g}s: {cause}",
                    op="read",
                    path=self.path,
                ) from cause
            await asyncio.sleep(pause)
            n += 1


def _find(page: _Page, offset: int) -> _Block | None:
    """The block that has the byte; None: it is in the tail."""
    low, high = 0, len(page.blocks)
    while low < high:
        mid = (low + high) // 2
        if page.blocks[mid].offset + page.blocks[mid].used <= offset:
            low = mid + 1
        else:
            high = mid
    return page.blocks[low] if low < len(page.blocks) else None


def check_is_file(path: str, attr: pb.Attr, op: str) -> None:
    """Raises for a directory."""
    if attr.type == pb.FILE_TYPE_DIRECTORY:
        raise IsDirectoryError("it is a directory", op=op, path=path)
