"""The one event loop of a process on which all connections live, in a thread of its own.

So leases are renewed whatever the program's threads, or its own event loop, are busy with.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from leasefs.errors import UnsupportedError

if TYPE_CHECKING:
    from leasefs._writer import CoreWriter

T = TypeVar("T")

_EXIT_TIME = 3.0  # for how many seconds the end of the interpreter waits for files to be closed


@runtime_checkable
class _Forgettable(Protocol):
    def forget(self) -> None: ...


class _AtExit(Protocol):
    closed: bool
    writers: set[CoreWriter]

    async def close(self, *, commit: bool = True) -> None: ...


class Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.over = False  # the program ends: what is open was told of, and is closed
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._cores: weakref.WeakSet[_AtExit] = weakref.WeakSet()
        self._thread = threading.Thread(target=self._loop.run_forever, name="leasefs", daemon=True)
        self._thread.start()
        atexit.register(self._exit)

    @property
    def here(self) -> bool:
        """Whether this is the process that began it, and not one forked from that."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises in a process that was forked: gRPC does not live on there."""
        if not self.here:
            raise UnsupportedError(
                f"process {self._pid}, from which this one was forked, had connected before; gRPC does not survive "
                "that: start processes with spawn or forkserver (multiprocessing.set_start_method), or connect only "
                "after the fork",
                op="connect",
                reason="fork",
            )

    def register(self, core: _AtExit) -> None:
        """Has a connection closed at the end of the interpreter."""
        self._cores.add(core)

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine and waits for it. On an interrupt it ends the coroutine first, then raises."""
        cancel, future = self._start(coro)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                cancel()
                concurrent.futures.wait([future])
                self._forget(future)
            raise

    async def arun(self, coro: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine from another event loop. Who cancels it waits until it has ended."""
        cancel, future = self._start(coro)
        mine = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(mine)
        except asyncio.CancelledError:
            if not future.done():
                cancel()
                await asyncio.wait([mine])
            self._forget(future)
            with contextlib.suppress(asyncio.CancelledError):
                mine.exception()
            raise

    def call_soon(self, fn: Callable[[], object]) -> None:
        """Calls a function on the loop, if that still lives; of finalizers, too."""
        if self.here:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(fn)

    def _start(self, coro: Coroutine[Any, Any, T]) -> tuple[Callable[[], None], concurrent.futures.Future[T]]:
        try:
            self.check()
            if threading.current_thread() is self._thread:
                raise RuntimeError("a callback of leasefs must not call it and wait")
        except BaseException:
            coro.close()
            raise
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self._loop.create_task(coro)
            tasks.append(task)
            task.add_done_callback(finish)

        def finish(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                future.set_exception(asyncio.CancelledError())
            elif (e := task.exception()) is not None:
                future.set_exception(e)
            else:
                future.set_result(task.result())

        def cancel() -> None:
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())  # noqa: PLW0108 (it is there by then)

        self._loop.call_soon_threadsafe(start)
        return cancel, future

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        """What a call made although its caller gave up is nobody's."""
        if future.exception() is None and isinstance(future.result(), _Forgettable):
            self.call_soon(future.result().forget)

    def _exit(self) -> None:
        """Ends what is still connected when the interpreter ends."""
        if not self.here:
            return
        self.over = True
        cores = [c for c in self._cores if not c.closed]
        if not cores:
            return
        if any(c.writers for c in cores):
            warnings.warn("leasefs: the program ends with open files", ResourceWarning, stacklevel=1)

        async def close() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_TIME):
                    await asyncio.gather(*(c.close(commit=False) for c in cores), return_exceptions=True)

        self.run(close())


_lock = threading.Lock()
_loop: Loop | None = None


def loop() -> Loop:
    """The process's loop, which is begun at the first use."""
    global _loop  # noqa: PLW0603 (one a process is what it is for)
    with _lock:
        if _loop is None:
            _loop = Loop()
        _loop.check()
        return _loop
