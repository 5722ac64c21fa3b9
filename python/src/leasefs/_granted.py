"""Granted leases, which a client keeps alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import grpc.aio

from leasefs import _clock
from leasefs._names import Call, Node, backoff, explain
from leasefs.errors import ClosedError, LeasefsError, LeaseLostError, NotFoundError, UnavailableError
from leasefs.v1 import leasefs_pb2 as pb

if TYPE_CHECKING:
    from leasefs._core import Core

log = logging.getLogger("leasefs")

_AT_ONCE = 50_000  # leases in a message


class CoreGranted:
    """A granted lease that is kept alive."""

    def __init__(self, core: Core, r: pb.GrantLeaseResponse, name: str, sent: float) -> None:
        self._core = core
        self.id = r.id
        self.name = name
        self.ttl = r.ttl_ms / 1000
        self.outlives = r.ttl_ms >= r.failover_ms
        self.until = sent + _clock.sure(self.ttl)
        self.lost: LeasefsError | None = None
        self.stopped = False
        self.on_lost = asyncio.Event()
        self.heard = asyncio.Event()  # of it, by a keep-alive

    def lose(self, why: str) -> None:
        """It has ended, or may have."""
        if self.lost is None:
            self.lost = LeaseLostError(f"granted lease {self.id:x} {why}", op="lease keep-alive")
            self.on_lost.set()
            self.heard.set()
            log.warning("%s", self.lost)

    def remaining(self) -> float:
        """For how many seconds it certainly lives on; 0 once it may have ended."""
        return 0.0 if self.lost is not None or self.stopped else max(self.until - _clock.now(), 0.0)

    def doubt(self) -> LeasefsError | None:
        """Why it may have ended; None: it lives, or this client keeps it alive no longer."""
        if self.lost is not None or self.stopped or self.remaining() > 0:
            return self.lost
        return LeaseLostError(
            f"granted lease {self.id:x} was not kept alive for its time to live of {self.ttl:g}s: it may have ended",
            op="lease keep-alive",
        )

    async def doubtful(self) -> LeasefsError:
        """Returns, once it may have ended, why."""
        await _clock.run_out(self.remaining, self.on_lost)
        return self.doubt() or _stopped()

    async def stop(self) -> None:
        """No longer keeps it alive."""
        self.stopped = True
        self._core.keeper.drop(self)

    async def revoke(self) -> None:
        """Ends it, and deletes all that is attached to it."""
        self.stopped = True
        self._core.keeper.drop(self)
        c = Call("lease revoke", mutates=True)
        req = pb.RevokeLeaseRequest(caller=self._core.caller, id=self.id)
        await self._core.change(c, "Namenode/RevokeLease", req, pb.RevokeLeaseResponse)


class Keeper:
    """Keeps granted leases alive, all on one stream, three times in their time to live."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._kept: dict[int, CoreGranted] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def keep(self, lease: CoreGranted) -> None:
        """Keeps a lease alive from now on."""
        self._kept[lease.id] = lease
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def drop(self, lease: CoreGranted) -> None:
        """Keeps it alive no longer."""
        if self._kept.pop(lease.id, None) is not None:
            lease.on_lost.set()
            lease.heard.set()

    async def hurry(self, lease: CoreGranted) -> None:
        """Keeps a lease alive now whose time is over: this machine may have stood still for longer than that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._core.config.timeout):
                while lease.id in self._kept and lease.remaining() <= 0:
                    lease.heard.clear()
                    self._wake.set()
                    await lease.heard.wait()

    async def close(self) -> None:
        """Keeps none alive any more."""
        for lease in list(self._kept.values()):
            self.drop(lease)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        n = 0
        while True:
            if not self._kept:
                self._wake.clear()
                await self._wake.wait()
            node = self._core.names.active
            stream = node.stream("Namenode/KeepAlive", pb.KeepAliveResponse)
            try:
                await self._core.names.patiently(node, self._serve(stream, node, first=True))
                n = 0
                while self._kept:
                    await self._pause()
                    await self._core.names.patiently(node, self._serve(stream, node, first=False))
            except Exception as raised:  # noqa: BLE001 (whatever it is, leases need their keep-alives)
                e, _ = explain(raised)
                log.debug("keep-alives were not answered, will be repeated: %s", e)
                self._core.names.move_on(node, e.active)
            finally:
                stream.cancel()
            self._expire()
            await asyncio.sleep(backoff(n))
            n += 1

    async def _pause(self) -> None:
        ttl = min((k.ttl for k in self._kept.values()), default=1.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ttl / 3):
                await self._wake.wait()
        self._wake.clear()

    async def _serve(
        self, stream: grpc.aio.StreamStreamCall[Any, pb.KeepAliveResponse], node: Node, *, first: bool
    ) -> None:
        """Names all leases once."""
        ids = list(self._kept)
        for i in range(0, len(ids), _AT_ONCE):
            some = ids[i : i + _AT_ONCE]
            sent = _clock.now()
            req = pb.KeepAliveRequest(ids=some, tell=False)
            if first and i == 0:
                req.caller.CopyFrom(self._core.caller)
            ttl = min((self._kept[k].ttl for k in some if k in self._kept), default=1.0)
            async with asyncio.timeout(min(max(ttl / 3, 1.0), self._core.config.attempt)):
                await stream.write(req)
                r = await stream.read()
            if not isinstance(r, pb.KeepAliveResponse):
                raise UnavailableError(f"{node.address} ended the stream")
            for alive in r.leases:
                lease = self._kept.get(alive.id)
                if lease is None:
                    continue
                if alive.ttl_ms == 0:
                    del self._kept[alive.id]
                    lease.lose("has ended" + (f": {alive.reason}" if alive.reason else ""))
                else:
                    lease.until = max(lease.until, sent + _clock.sure(alive.ttl_ms / 1000))
                    lease.heard.set()

    def _expire(self) -> None:
        for lease in list(self._kept.values()):
            if lease.until <= _clock.now():
                del self._kept[lease.id]
                lease.lose(f"was not kept alive for its time to live of {lease.ttl:g}s: it may have ended")


async def grant(core: Core, ttl: float, name: str) -> CoreGranted:
    """Grants a lease and keeps it alive."""
    c, sent = Call("lease grant", mutates=True), _clock.now()
    req = pb.GrantLeaseRequest(caller=core.caller, ttl_ms=-int(-ttl * 1000 // 1), name=name)
    r = await core.change(c, "Namenode/GrantLease", req, pb.GrantLeaseResponse)
    lease = CoreGranted(core, r, name, sent)
    core.keeper.keep(lease)
    return lease


async def scratch(core: Core) -> CoreGranted:
    """The lease of temporary files, granted at its first use."""
    async with core.scratch_turn:
        if core.scratch is not None and core.scratch.remaining() <= 0:
            await core.keeper.hurry(core.scratch)
        if core.scratch is None or core.scratch.remaining() <= 0:
            core.scratch = await grant(core, 120.0, "")
        return core.scratch


async def end_scratch(core: Core) -> None:
    """What is still attached to it was not published."""
    if core.scratch is not None and core.scratch.lost is None:
        with contextlib.suppress(LeasefsError, NotFoundError, TimeoutError):
            async with asyncio.timeout(2.0):
                await core.scratch.revoke()


def _stopped() -> LeasefsError:
    return ClosedError("the lease is not kept alive any more", op="lease keep-alive")


class Granted:
    """What both kinds of file systems show of a granted lease."""

    def __init__(self, core: CoreGranted) -> None:
        self._core = core

    @property
    def id(self) -> int:
        """What ``lease=`` of other calls takes; commands show it in hexadecimal."""
        return self._core.id

    @property
    def ttl(self) -> float:
        """For how many seconds it lives on when nobody keeps it alive, as granted."""
        return self._core.ttl

    @property
    def outlives(self) -> bool:
        """Whether it cannot be lost to a failover of the namenodes."""
        return self._core.outlives

    @property
    def lost(self) -> LeasefsError | None:
        """Why it has ended, or may have; None: it has not."""
        return self._core.doubt()

    def check(self) -> None:
        """Raises ``LeaseLostError`` once the lease has ended, or may have, ``ClosedError`` if it was stopped."""
        e = self._core.doubt()
        if e is None and self._core.stopped:
            e = _stopped()
        if e is not None:
            raise e

    def remaining(self) -> float:
        """For how many seconds it certainly lives on; 0 once it may have ended."""
        return self._core.remaining()
