"""A session: one stream to the active namenode, and the renewals of all that is open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from importlib import metadata
from typing import Any, NoReturn, Protocol

import grpc.aio

from leasefs import _clock
from leasefs._config import Config
from leasefs._names import Namenodes, Node, backoff, explain
from leasefs.errors import (
    InvalidArgumentError,
    LeasefsError,
    LeaseLostError,
    LeaseLostGoneError,
    NotActiveError,
    PermissionDeniedError,
    TooLargeError,
    UnavailableError,
    UnsupportedError,
    from_detail,
    holder_of,
)
from leasefs.v1 import leasefs_pb2 as pb

log = logging.getLogger("leasefs")

try:
    RELEASE = "python " + metadata.version("leasefs")  # what operators are shown of this client
except metadata.PackageNotFoundError:  # it runs from a source tree
    RELEASE = "python"

_FATAL = (PermissionDeniedError, InvalidArgumentError, UnsupportedError, TooLargeError)
_BROKEN = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, LeasefsError)


class OpenFile(Protocol):
    """A file open for write, as the session knows it."""

    inode: int
    epoch: int
    path: str
    renewed: float  # when its lease was certainly good last
    closing: bool  # its end is the matter of a call under way

    def lose(self, why: LeasefsError) -> None:
        """Tells that the lease is lost. The first cause counts."""


class Session:
    """One session of a client. All of it belongs to one event loop."""

    def __init__(self, config: Config, names: Namenodes, caller: pb.Caller) -> None:
        self._config = config
        self._names = names
        self._caller = caller
        self.welcome = pb.Welcome()
        self.soft = 0.0  # limits of a lease, in seconds
        self.hard = 0.0
        self._files: dict[tuple[int, int], OpenFile] = {}
        self._version = 0
        self._confirmed = 0  # the version that the namenode has
        self._resend = False
        self._jeopardy = False
        self._stream: grpc.aio.StreamStreamCall[Any, pb.SessionResponse] | None = None
        self._stream_node: Node | None = None
        self._seq = 0
        self._answer: tuple[int, asyncio.Future[pb.RenewLeaseResponse]] | None = None
        self._wake = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last: LeasefsError | None = None  # why there is no stream
        self._left = False
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Opens the session. UnavailableError if no namenode welcomes it in time."""
        self._tasks.append(asyncio.create_task(self._hold_stream()))
        try:
            async with asyncio.timeout(self._config.timeout):
                await asyncio.shield(self._ready)
        except TimeoutError:
            last = f"; last: {self._last.cause()}" if self._last else ""
            raise UnavailableError(
                f"no active namenode at {self._names} within {self._config.timeout:g}s{last}; "
                "start one, or name the one that is active",
                op="connect",
                reason="no namenode",
            ) from None
        self._tasks.append(asyncio.create_task(self._renew_loop()))
        self._tasks.append(asyncio.create_task(self._watch_loop()))

    async def close(self) -> None:
        """Ends the session; the namenode learns that it is over."""
        self._left = True
        if self._stream is not None:
            with contextlib.suppress(*_BROKEN, TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._stream.done_writing()
                    await asyncio.wait(self._tasks[:1])  # the namenode ends its side
        for t in self._tasks:
            t.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- files ---

    def files(self) -> list[OpenFile]:
        """Those that are open."""
        return list(self._files.values())

    def add(self, f: OpenFile) -> None:
        """Adds a file whose open was just answered."""
        self._files[f.inode, f.epoch] = f
        self._version += 1
        if _clock.now() - f.renewed > self.soft / 8:
            self._wake.set()  # it may have been granted as early as the call was first sent

    def remove(self, f: OpenFile) -> None:
        """Takes a file out."""
        if self._files.pop((f.inode, f.epoch), None) is not None:
            self._version += 1

    def remaining(self, f: OpenFile) -> float:
        """For how many seconds a file's lease is certainly not past its soft limit."""
        return _clock.sure(self.soft) - (_clock.now() - f.renewed)

    def check(self, f: OpenFile) -> None:
        """Ends a file's lease if that is over by our own clock."""
        age = _clock.now() - f.renewed
        if self.hard > 0 and age >= _clock.sure(self.hard):
            f.lose(
                LeaseLostError(
                    f"no renewal came through for {age:.0f}s, the hard limit is {self.hard:.0f}s: "
                    "others may have the file by now"
                )
            )

    async def _watch_loop(self) -> None:
        while True:
            # It looks often, rather than sleep until the deadline: a timer stands still while the machine is suspended.
            await asyncio.sleep(min(max(self.hard / 40, 0.01), 1.0))
            late = 0
            for f in self.files():
                if not f.closing:
                    self.check(f)
                if self.soft > 0 and _clock.now() - f.renewed > self.soft:
                    late += 1
            if late and not self._jeopardy:
                self._jeopardy = True
                log.warning(
                    "the lease on %d files is in jeopardy: not renewed since its soft limit; writing continues", late
                )
                self._wake.set()

    # --- renewals ---

    def renew_now(self) -> None:
        """Makes the renewer renew at once."""
        self._wake.set()

    async def _renew_loop(self) -> None:
        pause, fails = self._period(self.welcome.renew_every_ms), 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()
            try:
                resp = await self._renew()
            except Exception as e:  # noqa: BLE001 (whatever it is, others need their renewals)
                log.debug("a renewal failed, will be repeated: %s", e)
                pause, fails = backoff(fails), fails + 1
            else:
                # Without an open file, half the soft limit is often enough, whatever a lease needs.
                pause, fails = self._period(resp.next_renewal_ms if self._files else 0), 0

    def _period(self, every_ms: int) -> float:
        d = max(every_ms / 1000 if every_ms > 0 else self.soft / 2, 0.01)
        return d * (1 - random.random() * 0.15)

    async def _renew(self) -> pb.RenewLeaseResponse:
        req = pb.RenewLeaseRequest(session=self._caller.session, caller=self._caller, version=self._version)
        covered = self.files()
        req.has_set = self._resend or self._version != self._confirmed
        if req.has_set:
            req.open.extend(pb.OpenRef(inode=f.inode, epoch=f.epoch) for f in covered)
        sent = _clock.now()
        resp = await self._exchange(req)
        if req.has_set:
            self._resend = False
            self._confirmed = req.version
        again = resp.want_set or (resp.unknown_session and not req.has_set)
        self._resend = self._resend or again
        if again and not req.has_set:
            self._wake.set()
        self._lost_files(resp)
        if resp.unknown_session:
            if req.has_set:
                for f in covered:
                    if not f.closing:
                        f.lose(LeaseLostError("the namenode holds nothing of this session"))
            return resp
        if again:  # it did not look at all files
            return resp
        for f in covered:
            f.renewed = max(f.renewed, sent)
        self._set_limits(resp.soft_limit_ms, resp.hard_limit_ms)
        if self._jeopardy:
            self._jeopardy = False
            log.info("the lease is renewed again")
        return resp

    async def _exchange(self, req: pb.RenewLeaseRequest) -> pb.RenewLeaseResponse:
        limit = min(max(self.soft / 2, 1.0), self._config.attempt)
        stream, node = self._stream, self._stream_node
        if stream is None or node is None:
            node = self._names.active
            try:
                one = node.ask("Namenode/RenewLease", req, pb.RenewLeaseResponse, limit)
                plain: pb.RenewLeaseResponse = await self._names.patiently(node, one)
            except grpc.aio.AioRpcError as raised:
                e, _ = explain(raised)
                self._names.move_on(node, e.active)
                raise e from raised
            return plain
        self._seq += 1
        req.seq = self._seq
        future: asyncio.Future[pb.RenewLeaseResponse] = asyncio.get_running_loop().create_future()
        self._answer = (req.seq, future)

        async def over_stream() -> pb.RenewLeaseResponse:
            async with asyncio.timeout(limit):
                await stream.write(pb.SessionRequest(renew=req))
                return await future

        try:
            answer: pb.RenewLeaseResponse = await self._names.patiently(node, over_stream())
        except (TimeoutError, *_BROKEN) as raised:
            if not isinstance(raised, LeasefsError) or isinstance(raised, UnavailableError):
                stream.cancel()  # it takes messages and does not answer: try another stream
            raise UnavailableError("the session's stream broke") from raised
        finally:
            self._answer = None
        return answer

    def _lost_files(self, resp: pb.RenewLeaseResponse) -> None:
        """Tells the files that an answer names. One that is closing gets the truth from its own call."""
        for lost in resp.lost:
            f = self._files.get((lost.inode, lost.epoch))
            if f is not None and not f.closing:
                f.lose(_lost_error(lost))
        for ref in resp.unknown:
            f = self._files.get((ref.inode, ref.epoch))
            if f is not None and not f.closing:
                f.lose(LeaseLostError(f"the namenode does not know this file as open (epoch {ref.epoch})"))

    # --- the stream ---

    def drop(self, node: Node) -> None:
        """Breaks the stream to a namenode that said that it is not active."""
        if self._stream is not None and self._stream_node is node:
            self._stream.cancel()

    async def _hold_stream(self) -> None:
        number = n = 0
        began = _clock.now()
        while not self._left:
            node = self._names.active
            number += 1
            welcomed = False
            stream: grpc.aio.StreamStreamCall[Any, pb.SessionResponse] | None = None
            try:
                stream = node.stream("Namenode/Session", pb.SessionResponse)
                await self._greeted(node, stream, number)
                welcomed = True
                await self._serve(stream)
            except _BROKEN as raised:
                e, answered = explain(raised)
                if answered and isinstance(e, _FATAL) and not self._ready.done():
                    self._ready.set_exception(e.within("connect", ""))
                    return
            except TimeoutError:
                e = UnavailableError(f"{node.address} was too slow")
            except Exception as raised:  # noqa: BLE001 (without a stream, others may take the files)
                e, _ = explain(raised)
            finally:
                if stream is not None:
                    stream.cancel()
                self._stream = self._stream_node = None
                if self._answer is not None and not self._answer[1].done():
                    self._answer[1].set_exception(UnavailableError("the session's stream broke"))
            if self._left:
                return
            if welcomed:
                n, began = 0, _clock.now()
            self._last = e
            log.debug("no session with %s: %s", node.address, e)
            followed = self._names.move_on(node, e.active)
            if followed and n < 2:
                n += 1
                continue
            await asyncio.sleep(min(backoff(n), 0.1) if _clock.now() - began < 10 else backoff(n))
            n += 1

    async def _greeted(
        self, node: Node, stream: grpc.aio.StreamStreamCall[Any, pb.SessionResponse], number: int
    ) -> None:
        async with asyncio.timeout(self._config.attempt):
            await stream.write(pb.SessionRequest(hello=pb.Hello(caller=self._caller, stream=number, release=RELEASE)))
            m = await stream.read()
        if not isinstance(m, pb.SessionResponse):
            raise UnavailableError(f"{node.address} ended the stream")
        if m.HasField("error"):
            raise from_detail(m.error)
        if not m.HasField("welcome"):
            raise UnsupportedError(
                f"{node.address} answered Hello with something else: no namenode of this version of leasefs"
            )
        ours = self.welcome.namespace_id
        if ours and ours != m.welcome.namespace_id:
            raise UnavailableError(
                f"{node.address} serves namespace {m.welcome.namespace_id}, this session belongs to {ours}"
            )
        self._stream, self._stream_node = stream, node
        self._take_welcome(m.welcome)

    def _take_welcome(self, w: pb.Welcome) -> None:
        self.welcome = w
        self._resend = True  # it may be another namenode than before
        if not self._files:
            self._set_limits(w.soft_limit_ms, w.hard_limit_ms)
        else:  # limits count from a renewal on: lower ones must not end who could not yet renew
            self._wake.set()
        if not self._ready.done():
            self._ready.set_result(None)

    async def _serve(self, stream: grpc.aio.StreamStreamCall[Any, pb.SessionResponse]) -> NoReturn:
        while isinstance(m := await stream.read(), pb.SessionResponse):
            if m.HasField("renewed"):
                if self._answer is not None and m.renewed.seq == self._answer[0]:
                    if not self._answer[1].done():
                        self._answer[1].set_result(m.renewed)
                else:
                    self._lost_files(m.renewed)
            elif m.HasField("error"):
                e = from_detail(m.error)
                if isinstance(e, (NotActiveError, *_FATAL)) or self._answer is None:
                    raise e
                if not self._answer[1].done():
                    self._answer[1].set_exception(e)
            elif m.HasField("welcome"):
                self._take_welcome(m.welcome)
        raise UnavailableError("the namenode ended the session's stream")

    def _set_limits(self, soft_ms: int, hard_ms: int) -> None:
        if soft_ms > 0:
            self.soft = soft_ms / 1000
        if hard_ms > 0:
            self.hard = hard_ms / 1000


def _lost_error(lost: pb.LostFile) -> LeasefsError:
    cls = LeaseLostGoneError if lost.reason in ("deleted", "replaced") else LeaseLostError
    text = "the lease was lost"
    if lost.reason:
        text += f": {lost.reason}"
    holder = None
    if lost.HasField("new_holder"):
        holder = holder_of(lost.new_holder)
        text += f" by {holder.client} (host {holder.host})"
    return cls(text, reason=lost.reason, holder=holder)
