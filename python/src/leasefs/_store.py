"""Bytes of blocks on their way to and from the block store, by signed URL.

HTTP runs in threads of its own, so that the event loop never waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

import urllib3

from leasefs._config import Config, loopback
from leasefs.errors import ClosedError

T = TypeVar("T")

_STALL = 30.0  # seconds in which a transfer has to move a piece
_PIECE = 256 << 10
_THREADS = 16


class StoreError(Exception):
    """The block store did not answer, or answered something other than success."""

    def __init__(self, message: str, status: int = 0, kind: str = "") -> None:
        super().__init__(message)
        self.status = status  # 0: it did not answer
        self.kind = kind  # of our own store

    @property
    def full(self) -> bool:
        """Whether the store has no room."""
        return self.status == 507 or self.kind == "NO_SPACE"

    @property
    def refused(self) -> bool:
        """Whether trying the same again is of little use."""
        return self.status // 100 == 4 and self.status not in (408, 412, 429)


class ShortError(StoreError):
    """The store has fewer bytes of an object than the file's block list says."""


class _Threads:
    """Threads that work is done in, begun as they are needed.

    Those of ThreadPoolExecutor take nothing once main has returned, when other threads, and functions of
    atexit, may write yet. No thread can be begun in the latter, so there is one from the start.
    """

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._due = 0  # how much is being done or waits
        self._threads = 0
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        threading.Thread(target=self._serve, name=f"leasefs-blocks-{self._threads}", daemon=True).start()
        self._threads += 1

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Has work done. It is called by the event loop alone."""
        if self._closed:
            raise ClosedError("the client is closed")
        with self._lock:
            self._due += 1
            more = self._due > self._threads
        if more and self._threads < _THREADS:
            with contextlib.suppress(RuntimeError):  # the interpreter ends: those that are there do it
                self._begin()
        future: Future[T] = Future()
        self._work.put(partial(self._do, future, work))
        return future

    def close(self) -> None:
        """Ends the threads; what is being done is done first, and what waits is cancelled."""
        self._closed = True
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (do := self._work.get()) is not None:
            do()
            del do  # and the block that it has

    def _do(self, future: Future[T], work: Callable[[], T]) -> None:
        if self._closed:
            future.cancel()
        tell: Callable[[], object] = future.done
        if future.set_running_or_notify_cancel():
            try:
                tell = partial(future.set_result, work())
            except BaseException as e:  # noqa: BLE001 (whatever it is, who asked for the work has to learn of it)
                tell = partial(future.set_exception, e)
        with self._lock:
            self._due -= 1
        tell()
        del future, work, tell  # or an exception would keep them, by its traceback


class Store:
    """Connections to the block store, which any number of transfers share."""

    def __init__(self, config: Config) -> None:
        self._stall = min(_STALL, config.timeout)
        self._threads = _Threads()
        self._tls = config.tls
        self._managers: dict[str, urllib3.PoolManager] = {}

    def close(self) -> None:
        """Ends idle connections; transfers under way end by themselves."""
        self._threads.close()
        for m in self._managers.values():
            m.clear()

    async def run(self, work: Callable[[], T]) -> T:
        """Runs work that waits, or keeps the processor busy, in one of the threads."""
        return await asyncio.wrap_future(self._threads.submit(work))

    def _manager(self, url: str) -> urllib3.PoolManager:
        parts = urllib.parse.urlsplit(url)
        proxy = ""
        if not loopback(parts.netloc if parts.port else parts.netloc + ":80") and not urllib.request.proxy_bypass(
            parts.netloc
        ):
            proxy = urllib.request.getproxies().get(parts.scheme, "")
        manager = self._managers.get(proxy)
        if manager is None:
            timeout = urllib3.Timeout(connect=5.0, read=self._stall)
            if proxy:
                manager = urllib3.ProxyManager(
                    proxy, maxsize=_THREADS, retries=False, timeout=timeout, ssl_context=self._tls
                )
            else:
                manager = urllib3.PoolManager(maxsize=_THREADS, retries=False, timeout=timeout, ssl_context=self._tls)
            manager = self._managers.setdefault(proxy, manager)
        return manager

    def put(self, url: str, headers: Mapping[str, str], body: bytearray) -> None:
        """PUTs a whole object. It waits: call it by run."""

        def pieces() -> Iterator[bytes]:
            view = memoryview(body)
            for i in range(0, len(view), _PIECE):
                yield bytes(view[i : i + _PIECE])

        sent = {k: v for k, v in headers.items() if k.lower() != "content-length"}
        sent["Content-Length"] = str(len(body))
        try:
            r = self._manager(url).request("PUT", url, body=pieces(), headers=sent, redirect=False)
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise StoreError(f"the block store does not take the block ({_plain(e)})") from e
        if r.status // 100 != 2:
            raise _refusal(r.status, r.data)

    def get(self, url: str, headers: Mapping[str, str], start: int, length: int, whole: int) -> bytearray:
        """GETs bytes of an object, which has so many as a whole. It waits: call it by run."""
        sent = dict(headers)
        if start != 0 or length != whole:
            sent["Range"] = f"bytes={start}-{start + length - 1}"
        try:
            r = self._manager(url).request("GET", url, headers=sent, redirect=False, preload_content=False)
            try:
                if r.status not in (200, 206):
                    if r.status == 416:
                        raise ShortError("the block store has fewer bytes than the file's block list says")
                    raise _refusal(r.status, r.read(4096))
                if r.status == 200 and "Range" in sent:
                    raise StoreError("the block store ignores ranges", 200)
                got = self._read(r, length)
                r.drain_conn()
            finally:
                r.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise StoreError(f"the block store does not serve ({_plain(e)})") from e
        if len(got) < length:
            raise ShortError("the block store has fewer bytes than the file's block list says")
        return got

    def _read(self, r: urllib3.BaseHTTPResponse, length: int) -> bytearray:
        got = bytearray()
        since, moved = time.monotonic(), 0
        while len(got) < length:
            piece = r.read1(min(_PIECE, length - len(got)))
            if not piece:
                break
            got += piece
            moved += len(piece)
            if moved >= _PIECE:
                since, moved = time.monotonic(), 0
            elif time.monotonic() - since > self._stall:
                r.close()
                raise StoreError(f"the block store sent less than {_PIECE >> 10} KiB in {self._stall:g}s")
        return got


def _plain(e: BaseException) -> str:
    """An error without the URL: that is signed, and is not shown."""
    cause = getattr(e, "reason", None) or e
    return type(cause).__name__


def _refusal(status: int, body: bytes) -> StoreError:
    kind = message = ""
    try:
        told = json.loads(body)["error"]
        kind, message = str(told["kind"]), str(told["message"])
    except (ValueError, TypeError, LookupError):
        text = body[:4096].decode("utf-8", "replace")
        message = " ".join(text.partition(f"<{t}>")[2].partition(f"</{t}>")[0] for t in ("Code", "Message")).strip()
    text = f"the block store answered {status}"
    return StoreError(f"{text}: {message}" if message else text, status, kind)
