"""Leases that nobody in this process knows of, since the answer to an opening call was lost.

It is what package giveback of the Go library does. Such a call may have been carried out, or may be
yet. Its id is kept until a namenode has cancelled it: then what it has opened is closed, and if it
has opened nothing, it never will.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from leasefs import _clock
from leasefs._names import Call, backoff
from leasefs.errors import LeasefsError, LeaseLostError, transient
from leasefs.v1 import leasefs_pb2 as pb

if TYPE_CHECKING:
    from leasefs._core import Core

log = logging.getLogger("leasefs")

# How many calls are remembered. A namenode that knows results of the session refuses a call whose
# number is so far above the lowest one that is not answered.
_MAX_OPENS = 1 << 14
_AT_ONCE = 16  # of them are cancelled at once
_SETTLE = 10.0  # for how many seconds who opens a file waits: longer than a namenode that answers takes


class GiveBack:
    """What is to be given back. All of it belongs to one event loop."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def opening(self, c: Call, call: pb.CallId) -> bool:
        """Is told of an opening call that failed. True: what it opens is given back, and its id ends with that."""
        if not c.any_lost or len(self._tasks) >= _MAX_OPENS or self._core.names.closed:
            return False
        task = self._core.spawn(self._cancel(c.path, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def settle(self, most: float = _SETTLE) -> bool:
        """Waits until all calls are cancelled of which it was told. False: there was none, or the time was over."""
        if not self._tasks:
            return False
        _, left = await asyncio.wait(list(self._tasks), timeout=most)
        return not left

    async def _cancel(self, path: str, call: pb.CallId) -> None:
        try:
            async with self._turns:
                await self._try(path, pb.CancelOpenRequest(call=call, caller=self._core.caller))
        finally:
            self._core.names.ids.end(call.seq)

    async def _try(self, path: str, req: pb.CancelOpenRequest) -> None:
        """For the hard limit, in which the lease lapses, or until the connection ends."""
        began, n = _clock.now(), 0
        while _clock.now() - began < self._core.session.hard:
            try:
                c = Call("close", path, mutates=True)
                await self._core.names.do(c, "Namenode/CancelOpen", req, pb.MutateResponse)
            except LeaseLostError:
                return
            except LeasefsError as e:
                if not transient(e):
                    if not self._core.names.closed:
                        log.warning("%s may stay open until its lease is over: %s", path, e)
                    return
            else:
                return
            await asyncio.sleep(max(backoff(n), 0.5))
            n += 1
