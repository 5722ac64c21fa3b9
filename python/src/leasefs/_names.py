"""Calls to the namenodes of a namespace: which one is asked, and how often."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.rpc import status_pb2

from leasefs import _clock
from leasefs._config import Config, loopback
from leasefs.errors import (
    CanceledError,
    ClosedError,
    DeadlineError,
    InvalidArgumentError,
    LeasefsError,
    NotActiveError,
    RetryError,
    UnavailableError,
    UnknownOutcomeError,
    UnsupportedError,
    from_detail,
)
from leasefs.v1 import leasefs_pb2 as pb

R = TypeVar("R", bound=Message)
T = TypeVar("T")

_MAX_NODES = 64  # addresses that are known, those of the configuration included
_MAX_RECEIVE = 32 << 20  # bytes of an answer: a page of a listing or of blocks
_MAX_FAULTS = 3  # how often a call is sent again after an answer that nothing explains
_SUSPECT_AFTER = 1.0  # seconds without an answer until others are asked whether they serve
_SEEK_FOR = 10.0  # for how many seconds an active namenode is looked for without long pauses
TAIL_BUDGET = "tail budget"  # the reason of the answer that there is no room in tails

_NOT_REACHED = "failed to connect to all addresses"  # gRPC's words for a call that was never sent

_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", _MAX_RECEIVE),
    ("grpc.enable_retries", 0),  # repeating is ours: only we know what may happen once
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Node:
    """One namenode."""

    def __init__(self, address: str, config: Config) -> None:
        self.address = address
        if config.proof is not None and config.channel is None and not loopback(address):
            raise InvalidArgumentError(f"a token is sent to {address} over TLS only", op="connect")
        if config.channel is None:
            self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(address, config.channel, options=_OPTIONS)
        self._proof = config.proof

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The proof of who calls, if there is one."""
        if self._proof is None:
            return ()
        try:
            return (("authorization", "Bearer " + self._proof()),)
        except LeasefsError:
            raise
        except Exception as e:
            raise InvalidArgumentError(f"the token cannot be had: {e}", op="connect") from e

    async def ask(self, method: str, req: Message, answer: type[R], timeout: float) -> R:
        """One attempt at a call, such as "Namenode/Stat"."""
        call = self._channel.unary_unary(
            f"/leasefs.v1.{method}", request_serializer=_serialized, response_deserializer=answer.FromString
        )
        reply: R = await call(req, timeout=timeout, metadata=self.metadata())
        return reply

    def stream(self, method: str, answer: type[R]) -> grpc.aio.StreamStreamCall[Any, R]:
        """A stream of messages both ways."""
        call = self._channel.stream_stream(
            f"/leasefs.v1.{method}", request_serializer=_serialized, response_deserializer=answer.FromString
        )
        return call(metadata=self.metadata())

    async def close(self) -> None:
        """Ends all calls."""
        await self._channel.close()


def _serialized(m: Message) -> bytes:
    return m.SerializeToString()


class BrokenOffError(UnavailableError):
    """An attempt was given up, since another namenode is active."""


def explain(e: BaseException) -> tuple[LeasefsError, bool]:
    """What gRPC raised as an error of ours, and whether a namenode said it."""
    if isinstance(e, LeasefsError):
        return e, not isinstance(e, BrokenOffError)
    if not isinstance(e, grpc.aio.AioRpcError):
        return LeasefsError(f"{type(e).__name__}: {e}"), False
    for key, value in e.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        with contextlib.suppress(Exception):  # what cannot be read says nothing
            for any_ in status_pb2.Status.FromString(_as_bytes(value)).details:
                detail = pb.ErrorDetail()
                if any_.Unpack(detail):
                    return from_detail(detail), True
    text = e.details() or e.code().name
    if e.code() in _UNANSWERED:
        return UnavailableError(text), False
    if text.startswith("unknown method "):  # of a service that it has
        why = f"the namenode is of an older release, and does not know this call ({text})"
        why += "; docs/UPGRADES.md says how to upgrade it"
        return UnsupportedError(why, reason="older release"), True
    return LeasefsError(f"{e.code().name}: {text}"), False


def _as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")


_UNANSWERED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.ABORTED)


def backoff(n: int) -> float:
    """The pause in seconds before the n-th repetition, from 0 on: doubling, bounded, and spread."""
    d = min(0.02 * float(2 ** min(n, 6)), 1.0)
    return (1 + random.random()) * d / 2


class CallIds:
    """Numbers of a session's calls, each of which happens at most once."""

    def __init__(self, session: bytes) -> None:
        self._session = session
        self._next = 0
        self._low = 0  # all up to this one are answered
        self._done: set[int] = set()  # those above it that are

    def begin(self) -> pb.CallId:
        """The id of a new call; end has to follow."""
        self._next += 1
        return pb.CallId(session=self._session, seq=self._next, acked=self._low)

    def again(self, call: pb.CallId) -> None:
        """A call that is sent again says what is answered now."""
        call.acked = self._low

    def end(self, seq: int) -> None:
        """Nobody will ask for the call's result any more."""
        self._done.add(seq)
        while self._low + 1 in self._done:
            self._low += 1
            self._done.remove(self._low)


@dataclass(slots=True)
class Call:
    """One call to the namenode, and afterwards what became of it."""

    op: str
    path: str = ""
    mutates: bool = False  # a lost reply leaves its outcome unknown
    wait: float = 0.0  # for how many seconds the namenode may wait before it answers
    tail_too: bool = False  # hand on at once that there is no room in tails
    lost: bool = False  # a reply was lost, and no later one told the outcome
    any_lost: bool = False  # a reply was lost, whatever came later


class Namenodes:
    """Those of one namespace. All of it belongs to one event loop."""

    def __init__(self, config: Config, caller: pb.Caller, on_inactive: Callable[[Node], None]) -> None:
        self._config = config
        self._caller = caller
        self._on_inactive = on_inactive
        self._nodes = [Node(a, config) for a in config.namenodes]
        self.active = self._nodes[0]  # is believed to be
        self.ids = CallIds(caller.session)
        self.closed = False
        self._look: asyncio.Task[tuple[bool, bool]] | None = None

    def __str__(self) -> str:
        return ", ".join(n.address for n in self._nodes)

    async def close(self) -> None:
        """Ends all calls and connections."""
        self.closed = True
        if self._look is not None:
            self._look.cancel()
        await asyncio.gather(*(n.close() for n in self._nodes), return_exceptions=True)

    def move_on(self, node: Node, hint: str) -> bool:
        """Leaves a namenode that did not serve, for the one hinted at or the next. True: for the former."""
        if self.active is not node or self.closed:
            return False
        if hint and hint != node.address:
            for n in self._nodes:
                if n.address == hint:
                    self.active = n
                    return True
            if len(self._nodes) < _MAX_NODES:
                with contextlib.suppress(LeasefsError):
                    self._nodes.append(Node(hint, self._config))
                    self.active = self._nodes[-1]
                    return True
        self.active = self._nodes[(self._nodes.index(node) + 1) % len(self._nodes)]
        return False

    async def do(self, c: Call, method: str, req: Message, answer: type[R]) -> R:
        """Sends req, again with the same id, until there is an answer or the time is over."""
        began = _clock.now()
        n = hops = faults = 0
        while True:
            if self.closed:
                raise ClosedError("the client is closed", op=c.op, path=c.path)
            node = self.active
            try:
                reply = await self._once(c, node, method, req, answer)
            except asyncio.CancelledError:  # the request may be on its way
                c.lost = c.any_lost = c.mutates
                raise
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, LeasefsError) as raised:
                cause = raised
            else:
                c.lost = False
                return reply
            if self.closed:
                raise ClosedError("the client was closed meanwhile", op=c.op, path=c.path)
            e, answered = explain(cause)
            if isinstance(e, DeadlineError | CanceledError):
                answered = False  # the time of one attempt was over, whichever side noticed it first
            pause = backoff(n)
            if not answered:
                if c.mutates and not e.message.startswith(_NOT_REACHED):
                    c.lost = c.any_lost = True
                code = cause.code() if isinstance(cause, grpc.aio.AioRpcError) else grpc.StatusCode.UNKNOWN
                if code in _UNANSWERED or isinstance(cause, BrokenOffError):
                    self.move_on(node, "")
                    pause = _seek(n, began)
                elif code in _FAULTS and faults < _MAX_FAULTS:
                    faults += 1
                else:
                    raise e.within(c.op, c.path) from cause
            elif isinstance(e, NotActiveError):
                self._on_inactive(node)
                if self.move_on(node, e.active) and hops < 2:
                    hops += 1
                    pause = 0.0
                else:
                    pause = max(_seek(n, began), min(e.retry_after, 0.1))
            elif isinstance(e, RetryError):
                if c.tail_too and not c.lost and e.reason == TAIL_BUDGET:
                    raise e.within(c.op, c.path)
                pause = max(pause, e.retry_after)
            elif isinstance(e, UnavailableError | UnknownOutcomeError):
                if isinstance(e, UnknownOutcomeError):
                    c.lost = c.any_lost = c.mutates
                self.move_on(node, e.active)
            else:
                c.lost = False
                raise e.within(c.op, c.path)
            if _clock.now() - began + pause > self._config.timeout:
                raise self._over(c, e) from cause
            n += 1
            await asyncio.sleep(pause)
            if c.any_lost and _clock.now() - began > self._config.timeout:  # the machine was suspended meanwhile
                raise self._over(c, e) from cause
            call = getattr(req, "call", None)
            if isinstance(call, pb.CallId):
                self.ids.again(call)

    def _over(self, c: Call, last: LeasefsError) -> LeasefsError:
        unknown = c.mutates and c.lost
        if isinstance(last, RetryError) and not unknown:
            return last.within(c.op, c.path)
        text = f"no active namenode answered within {self._config.timeout:g}s (asked {self}); last: {last.cause()}"
        if unknown:
            text += "; its reply was lost, so whether it happened is not known: look before you repeat it"
        else:
            text += "; check that one runs there"
        return UnavailableError(text, op=c.op, path=c.path, reason="" if unknown else "no answer")

    async def _once(self, c: Call, node: Node, method: str, req: Message, answer: type[R]) -> R:
        limit = self._config.attempt + c.wait
        return await self.patiently(node, node.ask(method, req, answer, limit))

    async def patiently(self, node: Node, attempt: Coroutine[Any, Any, T]) -> T:
        """Awaits an attempt, and breaks it off once another namenode says that it is the active one.

        One that is stopped, or cut off, looks like a slow one for 20 s to its connections.
        """
        if len(self._nodes) == 1:
            return await attempt
        task = asyncio.ensure_future(attempt)
        pause = _SUSPECT_AFTER
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=pause)
                if done:
                    return task.result()
                moved, lives = await self._another_serves(node)
                if moved:
                    raise BrokenOffError(f"{node.address} does not answer, and {self.active.address} is active")
                pause = min(2 * pause, 10.0) if lives else 0.3
        finally:
            task.cancel()

    async def _another_serves(self, node: Node) -> tuple[bool, bool]:
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(self._look_around(node))
        moved, lives = await asyncio.shield(self._look)
        return moved and self.active is not node, lives

    async def _look_around(self, node: Node) -> tuple[bool, bool]:
        """Asks whether another one than node is active, or else node itself."""

        async def is_active(n: Node) -> bool:
            req = pb.StatusRequest(caller=self._caller)
            try:
                r = await n.ask("Admin/Status", req, pb.StatusResponse, _SUSPECT_AFTER)
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, LeasefsError):
                return False
            return r.role == "active"

        if await is_active(node):
            return False, True
        others = [n for n in self._nodes if n is not node]
        for n, active in zip(others, await asyncio.gather(*map(is_active, others)), strict=True):
            if active:
                if self.active is node:
                    self.active = n
                self._on_inactive(node)
                return True, False
        return False, False


def _seek(n: int, began: float) -> float:
    """The pause of a call that waits for an active namenode."""
    d = backoff(n)
    if _clock.now() - began < _SEEK_FOR:
        d = min(d, 0.05 + random.random() * 0.05)
    return d
