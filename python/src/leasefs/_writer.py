"""A file open for write: bytes on their way from a buffer into the file.

It is what package client of the Go library does, on one event loop: nothing here runs
at the same time as anything else, but for awaits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from leasefs import _clock, _format
from leasefs._names import TAIL_BUDGET, Call, backoff
from leasefs._store import StoreError
from leasefs.errors import (
    ClosedError,
    DamagedError,
    InvalidArgumentError,
    LeasefsError,
    LeaseLostError,
    NoSpaceError,
    NotAtEndError,
    NotFoundError,
    RetryError,
    TooLargeError,
    UnavailableError,
    told,
    transient,
)
from leasefs.v1 import leasefs_pb2 as pb

if TYPE_CHECKING:
    from leasefs._core import Core

log = logging.getLogger("leasefs")

_MAX_REFUSED = 4  # how often a block is put that the store refuses
_CLOSE_GRACE = 3.0  # for how many seconds a file is still closed when who closes it has given up
_ROOM_IN_MESSAGE = 36 << 10  # for a path and the rest of a message, beside the bytes


def max_piece(w: pb.Welcome) -> int:
    """How many bytes a call can carry."""
    n = w.max_message or 1 << 20
    return max(n - _ROOM_IN_MESSAGE, n // 2)


def max_whole(w: pb.Welcome) -> int:
    """Up to how many bytes a file can be made in one call."""
    n = min(w.small_file, max_piece(w))
    return min(n, w.max_tail) if w.max_tail > 0 else n


class _Block:
    """A block under way into the file."""

    def __init__(self, data: bytearray, start: int, hole: int, covered: int) -> None:
        self.data = data
        self.start = start
        self.end = start + len(data)
        self.hole = hole  # bytes at the start of data that are to be fetched first
        self.covered = covered  # bytes at its start that are in the file's tail
        self.covered_crc = 0
        self.crc = 0
        self.sealed = False
        self.lost = False  # a reply to its commit was lost: it may be in the file
        self.target: pb.BlockTarget | None = None  # set once it is stored there
        self.task: asyncio.Task[LeasefsError | None] | None = None


class _Piece:
    """Bytes for the tail of the file."""

    def __init__(self, offset: int, data: bytes) -> None:
        self.offset = offset
        self.data = data
        self.crc = _format.crc(data)
        self.lost = False  # a reply was lost: it may be there, or still come to be


class CoreWriter:
    """A file open for write by this client, and by nobody else."""

    def __init__(self, core: Core, path: str, r: pb.OpenResponse, sent: float) -> None:
        if not r.HasField("writer"):
            raise LeasefsError("the namenode opened the file and named no writer", path=path)
        self._core = core
        self.path = path
        self._id = r.writer
        self.inode = r.writer.inode
        self.epoch = r.writer.epoch
        self.took_over = r.took_over
        self.renewed = sent
        self.closing = False
        self.lost: LeasefsError | None = None
        self.on_lost = asyncio.Event()
        self.ended = asyncio.Event()
        self.durable = r.length  # the end of what the namenode has
        self.length = r.length  # the end of what was written
        self._full = core.session.welcome.block_size
        # The bytes of the file from _start on: first what is in the tail already, of which the
        # first _hole bytes are not known here, then what is not flushed.
        self._cur: bytearray | None = None
        self._start = r.blocks_length
        self._hole = r.length - r.blocks_length
        self._pending: list[_Block] = []
        self._block_error: LeasefsError | None = None  # who meets it starts the blocks again
        self._round: asyncio.Task[LeasefsError | None] | None = None
        self.kept = bytearray()  # what append has taken, and is not written yet
        self._unsure: _Piece | None = None  # must be sent again just so, before anything else
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        core.session.add(self)

    # --- the lease ---

    def lose(self, why: LeasefsError) -> None:
        """The lease is lost. The first cause counts."""
        if self.lost is not None:
            return
        self.lost = why.within("", self.path)
        self._core.session.remove(self)
        self.on_lost.set()
        self._notify()
        log.warning("lease lost: %s", self.lost)

    def remaining(self) -> float:
        """For how many seconds the file is certainly not another's; 0 once it is lost or closed."""
        return 0.0 if self.lost is not None or self.closing else self._core.session.remaining(self)

    def doubt(self) -> LeasefsError | None:
        """Why another may have the file by now; None: none has it, or this writer has given it up."""
        if self.lost is not None or self.closing or self.remaining() > 0:
            return self.lost
        limit = self._core.session.soft
        return LeaseLostError(
            f"no renewal came through within the soft limit of {limit:g}s: another may have it by now", path=self.path
        )

    async def doubtful(self) -> LeasefsError:
        """Returns, once another may have the file, why."""
        await _clock.run_out(self.remaining, self.on_lost)
        return self.doubt() or ClosedError("it was closed", path=self.path)

    def check_lock(self) -> None:
        """Raises unless no other has the file."""
        e = self.doubt()
        if e is None and self.closing:
            e = LeaseLostError("it was released")
        if e is not None:
            raise e.within("lock", self.path)

    async def renewed_for_long(self) -> None:
        """Returns once the lease is good for a while: the call that took it may have waited for longer than that."""
        soft = self._core.session.soft
        until = _clock.now() + max(soft, 1.0)
        while self.remaining() <= min(soft / 4, 10.0):
            self.usable()
            if _clock.now() > until:
                raise UnavailableError("it was taken, but then no renewal came through", op="lock", path=self.path)
            await asyncio.sleep(0.005)

    def usable(self) -> None:
        """Raises what keeps bytes from being written."""
        if self.lost is not None:
            raise self.lost
        if self.closing:
            raise ClosedError("the writer is closed", path=self.path)

    def _check(self) -> None:
        if self.lost is None:
            self._core.session.check(self)
        if self.lost is not None:
            raise self.lost

    def _seen(self, e: LeasefsError) -> LeasefsError:
        """Takes note of an error of a call of this writer."""
        if isinstance(e, LeaseLostError):
            self.lose(e)
            return self.lost or e
        return e

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self) -> None:
        await self._changed.wait()

    # --- writing ---

    async def write(self, data: bytearray) -> None:
        """Appends data. What is taken leaves the bytearray: after an error, the rest is still in it."""
        try:
            async with self._writing:
                self.usable()
                while data:
                    await self._make_room()
                    assert self._cur is not None
                    n = min(len(data), self._full - len(self._cur))
                    self._cur += data[:n]
                    del data[:n]
                    self.length += n
                    if len(self._cur) == self._full and self._may_dispatch():
                        self._dispatch()
        except LeasefsError as e:
            raise e.within("write", self.path) from e

    async def append(self, data: bytearray) -> None:
        """Appends all of data: what an error leaves of it is kept, and goes with the next call."""
        if self.lost is None and not self.closing:
            self.kept += data
        await self.write(self.kept)

    async def _make_room(self) -> None:
        """Waits until the current buffer has room."""
        while True:
            self.usable()
            if self._block_error is not None:
                e = self._block_error
                self._restart()
                raise e
            if self._cur is None:
                if self._hole < self._full:
                    self._cur = bytearray(self._hole)
                    return
                await self._split_tail()
            elif len(self._cur) < self._full:
                return
            elif self._may_dispatch():
                self._dispatch()
            elif self._unsure is not None and self._round is None:
                e2 = await asyncio.shield(self._start_round(for_close=False))
                if e2 is not None:
                    raise e2
            else:
                await self._wait()

    def _may_dispatch(self) -> bool:
        return (
            self._round is None
            and self._unsure is None
            and self._block_error is None
            and len(self._pending) < self._core.config.write_ahead
        )

    def _dispatch(self) -> None:
        """Makes the current buffer a block under way."""
        assert self._cur is not None
        covered = min(max(self.durable - self._start, 0), len(self._cur))
        b = _Block(self._cur, self._start, self._hole, covered)
        self._cur, self._start, self._hole = None, b.end, 0
        self._pending.append(b)
        self._start_block(len(self._pending) - 1)

    def _start_block(self, i: int) -> None:
        b = self._pending[i]
        before = self._pending[i - 1].task if i > 0 else None
        b.task = asyncio.create_task(self._run_block(b, before, b.task))

    def _restart(self) -> None:
        """Tries all blocks again after a failure."""
        self._block_error = None
        for i in range(len(self._pending)):
            self._start_block(i)

    async def _run_block(
        self,
        b: _Block,
        before: asyncio.Task[LeasefsError | None] | None,
        own: asyncio.Task[LeasefsError | None] | None,
    ) -> LeasefsError | None:
        """One try to get a block into the file, from where an earlier one stopped."""
        if own is not None:
            await asyncio.wait({own})
            if not own.cancelled() and own.result() is None:
                return None  # it made it while it was being started again
        me = asyncio.current_task()
        try:
            await self._get_block_in(b, before)
        except Exception as raised:  # noqa: BLE001 (whatever it is, who waits for the block has to learn of it)
            e = self._seen(told(raised).within("write", self.path))
            if b.task is me and not isinstance(raised, _BeforeError):
                self._block_error = e
            self._notify()
            return e
        self._pending.remove(b)  # commits are in order, so it is the first
        self.durable = max(self.durable, b.end)
        self._notify()
        return None

    async def _get_block_in(self, b: _Block, before: asyncio.Task[LeasefsError | None] | None) -> None:
        if not b.sealed:
            if b.hole > 0:
                b.data[: b.hole] = await self._fetch_tail(b.start, b.hole)
                b.hole = 0
            await self._core.store.run(lambda: self._seal(b))
        if b.target is None:
            b.target = await self._put(b)
        if before is not None:
            await asyncio.wait({before})
            if before.cancelled() or before.result() is not None:
                raise _BeforeError("the block before it failed")
        try:
            await self._commit(b)
        except LeasefsError:
            if b.target is not None:
                raise
            b.target = await self._put(b)  # the key's time was over: once more, under a fresh one
            await self._commit(b)

    @staticmethod
    def _seal(b: _Block) -> None:
        b.covered_crc = _format.crc(b.data[: b.covered])
        b.crc = _format.seal(b.data)
        b.sealed = True

    async def _put(self, b: _Block) -> pb.BlockTarget:
        """Puts the object where the namenode says, after each failure under a fresh key."""
        began = _clock.now()
        n = refused = 0
        while True:
            self._check()
            req = pb.AllocateBlockRequest(
                writer=self._id, blocks=[pb.BlockIntent(stored_length=len(b.data), crc32c=b.crc)]
            )
            c = Call("write", self.path)
            resp = await self._core.names.do(c, "Namenode/AllocateBlock", req, pb.AllocateBlockResponse)
            if len(resp.targets) != 1:
                raise LeasefsError(f"the namenode allocated {len(resp.targets)} blocks for 1")
            target = resp.targets[0]
            put = partial(self._core.store.put, target.url, dict(target.headers), b.data)
            try:
                await self._core.store.run(put)
            except StoreError as e:
                if e.full:
                    raise NoSpaceError(str(e)) from e
                refused += e.refused
                pause = backoff(n)
                limit = self._core.config.timeout
                if refused >= _MAX_REFUSED:
                    raise UnavailableError(f"block {target.term:x}/{target.seq:x} could not be stored: {e}") from e
                if _clock.now() - began + pause > limit:
                    raise UnavailableError(f"the block store took no block within {limit:g}s: {e}") from e
                await asyncio.sleep(pause)
                n += 1
            else:
                return target

    async def _commit(self, b: _Block) -> None:
        """Makes the stored block part of the file."""
        assert b.target is not None
        self._check()
        req = pb.CommitRequest(
            writer=self._id,
            offset=b.start,
            tail_covered=b.covered,
            tail_crc32c=b.covered_crc,
            block=pb.Block(
                term=b.target.term,
                seq=b.target.seq,
                stored_length=len(b.data),
                used_length=b.end - b.start,
                crc32c=b.crc,
            ),
        )
        c, asked = Call("write", self.path, mutates=True), _clock.now()
        try:
            await self._core.names.do(c, "Namenode/Commit", req, pb.CommitResponse)
        except LeasefsError as e:
            b.lost = b.lost or c.any_lost
            if not c.lost and isinstance(e, NotFoundError | InvalidArgumentError):
                b.target = None  # not the namenode's any more: it is to be stored again
            raise
        # The namenode renews for a commit that makes the file longer, and not for one of
        # which an earlier call left the record.
        if b.end - b.start > b.covered and not b.lost and not c.any_lost:
            self.renewed = max(self.renewed, asked)

    async def _fetch_tail(self, offset: int, length: int) -> bytes:
        """The first bytes of the file's tail, which a writer that opened for append does not know."""
        req = pb.GetFileRequest(
            caller=self._core.caller, at=pb.Ref(base=self.inode), writer=self._id, offset=offset, no_urls=True
        )
        r = await self._core.names.do(Call("write", self.path), "Namenode/GetFile", req, pb.GetFileResponse)
        if r.tail_offset != offset or len(r.tail) < length:
            raise LeasefsError(
                f"the file's tail has {length} bytes from {offset} on; "
                f"the namenode gave {len(r.tail)} from {r.tail_offset} on"
            )
        if _format.crc(r.tail) != r.tail_crc32c:
            raise DamagedError(f"the file's tail at offset {offset} does not match its checksum")
        return r.tail[:length]

    async def _split_tail(self) -> None:
        """Makes blocks of a tail that is longer than one, so that the rest fits a buffer."""
        tail = await self._fetch_tail(self._start, self._hole)
        self.usable()
        self._hole = 0
        while len(tail) >= self._full:
            self._cur = bytearray(tail[: self._full])
            tail = tail[self._full :]
            self._dispatch()
        self._cur = bytearray(tail)

    # --- flushing ---

    async def flush(self) -> None:
        """Returns once all that was written before is durable. It continues if the caller gives up."""
        if self.kept:
            await self.write(self.kept)
        target = self.length
        try:
            while True:
                self.usable()
                if self.durable >= target:
                    return
                e = await asyncio.shield(self._round or self._start_round(for_close=False))
                if e is not None and self.durable < target:
                    raise e
        except LeasefsError as raised:
            raise raised.within("flush", self.path) from raised

    def _start_round(self, *, for_close: bool) -> asyncio.Task[LeasefsError | None]:
        async def run() -> LeasefsError | None:
            try:
                await self._flush(for_close=for_close)
            except Exception as e:  # noqa: BLE001 (so have those who wait for the round)
                return self._seen(told(e))
            except asyncio.CancelledError:  # by _stop_work alone
                return ClosedError("the writer was closed meanwhile")
            finally:
                self._round = None
                self._notify()
            return None

        self._round = asyncio.create_task(run())
        return self._round

    async def _flush(self, *, for_close: bool) -> None:
        """Makes durable what is written. Writes dispatch no block meanwhile."""
        if self._block_error is not None:
            self._restart()
        await self._drain()
        target = self.length  # what comes later is for the next round
        as_block = False
        while True:
            self._check()
            if self._unsure is None and (self.durable >= target or (for_close and self._fits_close())):
                return
            if self._unsure is None:
                assert self._cur is not None
                if as_block or len(self._cur) > self._core.session.welcome.max_tail:
                    self._dispatch()
                    await self._drain()
                    continue
                off = self.durable - self._start
                self._unsure = _Piece(self.durable, bytes(self._cur[off : off + max_piece(self._core.session.welcome)]))
            as_block = await self._append_tail(self._unsure) or as_block

    async def _append_tail(self, p: _Piece) -> bool:
        """Sends one piece. True: the tails' budget is used up, and it was not taken."""
        req = pb.AppendTailRequest(writer=self._id, offset=p.offset, data=p.data, crc32c=p.crc)
        c, asked = Call("flush", self.path, mutates=True, tail_too=not p.lost), _clock.now()
        try:
            await self._core.names.do(c, "Namenode/AppendTail", req, pb.AppendTailResponse)
        except LeasefsError as e:
            p.lost = p.lost or c.any_lost
            if not p.lost or isinstance(e, TooLargeError):
                self._unsure = None
                if tail_refused(e):
                    return True
            raise
        if not p.lost and not c.any_lost:
            self.renewed = max(self.renewed, asked)
        self.durable, self._unsure = p.offset + len(p.data), None
        return False

    def _fits_close(self) -> bool:
        """Whether all that is left can go with Close."""
        rest = self.length - self.durable
        if self._pending or self._unsure is not None:
            return False
        w = self._core.session.welcome
        return rest == 0 or (rest <= max_whole(w) and self.length - self._start <= w.max_tail)

    async def _drain(self) -> None:
        """Waits until no block is under way."""
        while self._pending:
            if self._block_error is not None:
                raise self._block_error
            if self.lost is not None:
                raise self.lost
            await self._wait()

    # --- the end ---

    async def close(self, last: bytearray | None = None) -> None:
        """Writes the last bytes, or what was kept, makes all durable and closes the file.

        Whatever is raised, the writer is done with.
        """
        last = last or self.kept
        failed: Exception | None = None
        try:
            if last and not self.closing:
                if self._block_error is not None:  # of a trouble that may be over: they are tried once more
                    self._restart()
                await self.write(last)
        except Exception as refused:  # noqa: BLE001 (it is raised below)
            failed = refused
        except asyncio.CancelledError:
            self._core.spawn(self._abort_quietly())
            raise
        self._begin_end()
        try:
            if failed is not None:
                raise failed
            await self._settle()
            await self._close_with_rest()
        except Exception as raised:
            why = self._seen(told(raised).within("close", self.path))
            await self._end_unflushed(why)
            raise why from raised
        except asyncio.CancelledError:
            # Who closes gave up: the file must not stay open for that.
            self._core.spawn(self._end_unflushed(ClosedError("closing was given up")))
            raise
        self._end()

    async def abort(self) -> None:
        """Closes the file at its flushed length, and drops what was not flushed."""
        self._begin_end()
        self._stop_work()
        try:
            await self._close_at()
        except Exception as raised:
            e = self._seen(told(raised).within("close", self.path))
            self._abandon(e)
            self._end()
            raise e from raised
        except asyncio.CancelledError:
            self._core.spawn(self._end_unflushed(ClosedError("closing was given up")))
            raise
        self._end()

    def forget(self) -> None:
        """Nobody is left who could write: what was not flushed is dropped."""
        if not self.closing and not self._core.closed:
            self._core.spawn(self._abort_quietly())

    async def _abort_quietly(self) -> None:
        with contextlib.suppress(LeasefsError):
            await self.abort()

    def _begin_end(self) -> None:
        if self.closing:
            raise ClosedError("the writer is closed already", op="close", path=self.path)
        self.closing = True
        self._notify()

    async def _settle(self) -> None:
        """Gets everything on its way that cannot go with Close."""
        async with self._writing:  # a write under way ends first: it sees that the writer is closing
            while True:
                if self.lost is not None:
                    raise self.lost
                if self._round is None and self._block_error is None and self._fits_close():
                    return
                e = await asyncio.shield(self._round or self._start_round(for_close=True))
                if e is not None:
                    raise e

    async def _close_with_rest(self) -> None:
        rest = b""
        if self.length > self.durable:
            assert self._cur is not None
            rest = bytes(self._cur[self.durable - self._start :])
        c = Call("close", self.path, mutates=True, tail_too=bool(rest))
        try:
            await self._send_close(c, rest)
        except LeasefsError as e:
            if not rest or c.lost or not tail_refused(e):
                raise
            self._dispatch()
            await self._drain()
            await self._send_close(Call("close", self.path, mutates=True), b"")
        self.durable = self.length

    async def _send_close(self, c: Call, rest: bytes) -> None:
        self._check()
        req = pb.CloseRequest(
            writer=self._id,
            offset=self.durable,
            data=rest,
            crc32c=_format.crc(rest),
            length=self.durable + len(rest),
        )
        await self._core.change(c, "Namenode/Close", req, pb.CloseResponse)

    async def _close_at(self) -> None:
        """Closes at what is flushed, which the namenode may know better: a reply may have been lost."""
        for _ in range(2):
            try:
                await self._send_close(Call("close", self.path, mutates=True), b"")
            except NotAtEndError as e:
                self.durable = e.length
            else:
                return
        raise LeasefsError("the namenode changes its mind about the file's length")

    async def _end_unflushed(self, why: LeasefsError) -> None:
        """After close failed: the bytes are lost to this file, and it must not stay open."""
        self._stop_work()
        if self.lost is None:
            if transient(why):
                self._abandon(why)
            else:
                try:
                    async with asyncio.timeout(_CLOSE_GRACE):
                        await self._close_at()
                except Exception as e:  # noqa: BLE001 (whatever it is, the writer ends)
                    self._abandon(e)
        self._end()

    def _stop_work(self) -> None:
        for b in self._pending:
            if b.task is not None:
                b.task.cancel()
        if self._round is not None:
            self._round.cancel()

    def _end(self) -> None:
        self._stop_work()
        self._core.session.remove(self)
        self._core.writers.discard(self)
        self.ended.set()
        self.on_lost.set()
        self._cur = None
        self.kept.clear()
        self._pending.clear()
        self._notify()

    def _abandon(self, why: BaseException) -> None:
        """Closes the file at what is flushed in the background, as soon as a namenode answers."""
        if self.lost is not None or isinstance(why, LeaseLostError | NotFoundError):
            return
        log.warning("closing %s was not confirmed; it is tried in the background: %s", self.path, why)
        self._core.spawn(self._close_late())

    async def _close_late(self) -> None:
        """The token is the right to do so: by now the file may have another name, or be read-only."""
        began, n = _clock.now(), 0
        while _clock.now() - began < _clock.sure(self._core.session.hard):
            req = pb.CloseRequest(writer=self._id, length=-1, mtime_unix_ms=_KEEP_MTIME)
            try:
                await self._core.change(Call("close", self.path, mutates=True), "Namenode/Close", req, pb.CloseResponse)
            except LeasefsError as e:
                if not transient(e):
                    return
            else:
                return
            await asyncio.sleep(max(backoff(n), 0.5))
            n += 1


_KEEP_MTIME = -(1 << 63)  # the modification time of a file is to stay


class _BeforeError(LeasefsError):
    """The block before it failed."""


def tail_refused(e: LeasefsError) -> bool:
    """Whether the namenode has no room for bytes in a tail, so that they have to become a block."""
    return isinstance(e, TooLargeError) or (isinstance(e, RetryError) and e.reason == TAIL_BUDGET)
