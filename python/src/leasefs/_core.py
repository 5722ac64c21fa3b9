"""The file system as coroutines of one event loop. Its two faces are leasefs._sync and leasefs.aio."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

from google.protobuf.message import Message

from leasefs import _clock, _format, _granted
from leasefs._config import Config, StrPath, is_utf8, login
from leasefs._giveback import GiveBack
from leasefs._granted import CoreGranted, Keeper
from leasefs._info import FileInfo, Recovered, Summary, file_info
from leasefs._names import Call, Namenodes, Node, backoff
from leasefs._reader import CoreReader, check_is_file
from leasefs._session import Session
from leasefs._store import Store
from leasefs._writer import CoreWriter, max_whole, tail_refused
from leasefs.errors import (
    ClosedError,
    ExistsError,
    HeldError,
    InvalidArgumentError,
    InvalidPathError,
    IsDirectoryError,
    LeasefsError,
    NameTooLongError,
    NotFoundError,
    TruncatedError,
    UnsupportedError,
)
from leasefs.v1 import leasefs_pb2 as pb

R = TypeVar("R", bound=Message)
T = TypeVar("T")

_MAX_NAME, _MAX_PATH, _MAX_DEPTH = 255, 32768, 1024
_WAIT_SLICE = 20.0  # for how many seconds one call waits at the namenode for a holder
_CLOSE_GRACE = 3.0  # for how many seconds close waits for openings to be cancelled
_FOLLOW = pb.REF_HOW_FOLLOW_LAST


def clean(op: str, path: StrPath) -> str:
    """An absolute path without doubled and trailing slashes, checked."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise InvalidPathError(f"{text!r} is no str: names are text", op=op)
    if not text.startswith("/"):
        hint = f"give an absolute one such as /{text[:64]}" if text else "give an absolute one such as /logs/a"
        raise InvalidPathError(f"the path is {'relative' if text else 'empty'}; {hint}", op=op, path=_shown(text))
    names = [n for n in text.split("/") if n]
    for n in names:
        if n in (".", ".."):
            raise InvalidPathError(f'"{n}" is not allowed; give the path without it', op=op, path=_shown(text))
        if "\0" in n:
            raise InvalidPathError("a name has a NUL byte", op=op, path=_shown(text))
        if not is_utf8(n):  # such as os.listdir has for bytes that are none
            raise InvalidPathError("a name is not valid UTF-8; names here are", op=op, path=_shown(text))
        if len(n.encode()) > _MAX_NAME:
            raise NameTooLongError(f"a name is over the limit of {_MAX_NAME} bytes", op=op, path=_shown(text))
    text = "/" + "/".join(names)
    if len(text.encode()) > _MAX_PATH or len(names) > _MAX_DEPTH:
        raise NameTooLongError(
            f"the path is over the limits of {_MAX_PATH} bytes and {_MAX_DEPTH} names", op=op, path=_shown(text)
        )
    return text


def _shown(path: str) -> str:
    return ascii(path[:256])[1:-1] if not is_utf8(path) or not path.isprintable() else path[:256]


def _follow(path: str) -> pb.Ref:
    return pb.Ref(path=path, how=_FOLLOW)


def _session_of(user: str) -> bytes:
    """The id of a new session, which shows whose it is: see Caller.session in leasefs.proto."""
    random = secrets.token_bytes(10)
    return random + hashlib.sha256(b"leasefs session of\0" + random + user.encode()).digest()[:6]


class Core:
    """A namespace as one session of one client sees it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.caller = pb.Caller()
        self.names: Namenodes
        self.session: Session
        self.store = Store(config)
        self.keeper = Keeper(self)
        self.giveback = GiveBack(self)
        self.writers: set[CoreWriter] = set()
        self.readers: set[CoreReader] = set()
        self.scratch: CoreGranted | None = None
        self.scratch_turn = asyncio.Lock()
        self.closed = False
        self._end: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._awaited: set[asyncio.Event] = set()

    @classmethod
    async def connect(cls, config: Config) -> Self:
        """Connects, and opens a session."""
        core = cls(config)
        try:
            user = config.user or await core._learn_user()
        except BaseException:
            core.store.close()
            raise
        core.caller = core._caller(user)
        core.names = Namenodes(config, core.caller, core._inactive)
        core.session = Session(config, core.names, core.caller)
        try:
            await core.session.open()
        except BaseException:
            core.closed = True
            await core._shut()
            raise
        return core

    def _caller(self, user: str) -> pb.Caller:
        c = self.config
        return pb.Caller(
            user=user,
            real_user=c.real_user,
            client=c.client,
            session=_session_of(user),
            host=c.host,
            pid=c.pid,
            ttl_ms=-int(-c.ttl * 1000 // 1),
        )

    def _inactive(self, node: Node) -> None:
        self.session.drop(node)

    async def _learn_user(self) -> str:
        """Who the bearer of the proof is."""
        names = Namenodes(self.config, self._caller(""), lambda _: None)
        try:
            r = await names.do(
                Call("connect"), "Namenode/WhoAmI", pb.WhoAmIRequest(caller=pb.Caller()), pb.WhoAmIResponse
            )
        except UnsupportedError:  # by an older namenode
            return login()
        except LeasefsError as e:
            e.op = "connect"
            raise
        finally:
            await names.close()
        return r.user or login()

    def spawn(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs something in the background, until close at the longest."""
        task = asyncio.create_task(coro)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """The session does not end before what is done within, or a timeout is over."""
        over = asyncio.Event()
        self._awaited.add(over)
        try:
            yield
        finally:
            self._awaited.discard(over)
            over.set()

    async def close(
        self, ends: Mapping[CoreWriter, Callable[[], Coroutine[Any, Any, None]]] | None = None, *, commit: bool = True
    ) -> None:
        """Closes all that is open, with commit what is not flushed included, and ends the session.

        ends are what closes those writers of which the face has bytes that the core does not know.
        """
        how: dict[CoreWriter, Callable[[], Coroutine[Any, Any, None]]] = {}
        if not self.closed:
            for w in self.writers:
                if not w.closing:
                    how[w] = w.close if commit else w.abort
        elif not ends:
            return
        how.update(ends or {})
        self.closed = True
        for r in list(self.readers):
            r.close()
        try:
            results = await asyncio.gather(*(end() for end in how.values()), return_exceptions=True)
        finally:  # if who closes gives up, the rest ends in the background
            if self._leaving is None:
                self._leaving = asyncio.create_task(self._leave())
        await asyncio.shield(self._leaving)
        errors = [e for e in results if isinstance(e, BaseException)]
        for e in errors[1:]:
            errors[0].add_note(f"also: {e}")
        if errors:
            raise errors[0]

    async def _leave(self) -> None:
        """Ends the session, once no file is open any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout):
                others = [*(w.ended for w in self.writers), *self._awaited]  # what other threads are closing
                await asyncio.gather(*(e.wait() for e in others))
        await self.giveback.settle(_CLOSE_GRACE)
        await _granted.end_scratch(self)
        await self._shut()

    def forget(self) -> None:
        """Nobody is left who could use it: what is not flushed is dropped."""
        self._end = asyncio.create_task(self._close_quietly())

    async def _close_quietly(self) -> None:
        with contextlib.suppress(LeasefsError):
            await self.close(commit=False)

    async def _shut(self) -> None:
        await self.keeper.close()
        await self.session.close()
        for t in list(self._tasks):
            t.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.names.close()
        self.store.close()

    def _may_open(self, op: str, path: str) -> None:
        if self.closed:
            raise ClosedError("the client is closed", op=op, path=path)

    async def change(self, c: Call, method: str, req: Message, answer: type[R]) -> R:
        """A call that changes something, which happens at most once."""
        call = self.names.ids.begin()
        req.call.CopyFrom(call)  # type: ignore[attr-defined]
        try:
            return await self.names.do(c, method, req, answer)
        finally:
            self.names.ids.end(call.seq)

    async def _open(self, c: Call, method: str, req: pb.CreateRequest | pb.AppendRequest) -> pb.OpenResponse:
        """A call that opens a file. If its answer is lost, what it has opened, or will open, is given back."""
        call = self.names.ids.begin()
        req.call.CopyFrom(call)
        kept = False
        try:
            return await self.names.do(c, method, req, pb.OpenResponse)
        except BaseException:
            kept = self.giveback.opening(c, call)
            raise
        finally:
            if not kept:
                self.names.ids.end(call.seq)

    async def _settled(self, e: HeldError) -> bool:
        """Whether the file may have been held by a call of this client whose answer was lost, and is not any more."""
        h, me = e.holder, self.caller
        own = h is None or (h.client, h.host, h.pid) == (me.client, me.host, me.pid)
        return own and await self.giveback.settle()

    async def _unless_own(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks once more if a lost call of this client may have been the holder."""
        try:
            return await ask()
        except HeldError as e:
            if not await self._settled(e):
                raise
            return await ask()

    async def _mutate(self, op: str, path: str, method: str, req: Message) -> pb.MutateResponse:
        return await self.change(Call(op, path, mutates=True), method, req, pb.MutateResponse)

    # --- the tree ---

    async def stat(self, path: StrPath, *, follow: bool = True, op: str = "stat") -> FileInfo:
        at = clean(op, path)
        req = pb.StatRequest(caller=self.caller, at=_follow(at) if follow else pb.Ref(path=at))
        r = await self.names.do(Call(op, at), "Namenode/Stat", req, pb.StatResponse)
        return file_info(at, r.attr)

    async def list_page(self, path: str, directory: int, after: str, limit: int) -> tuple[list[FileInfo], int, bool]:
        """A page of a directory: entries, the directory's inode for the next page, and whether there is one."""
        at = pb.Ref(base=directory) if directory else _follow(path)
        req = pb.ListRequest(caller=self.caller, at=at, after=after, limit=limit)
        r = await self.names.do(Call("list", path), "Namenode/List", req, pb.ListResponse)
        parent = path.rstrip("/")
        infos = [file_info(f"{parent}/{e.name}", e.attr) for e in r.entries]
        return infos, r.directory.inode, r.more and bool(infos)

    async def summary(self, path: StrPath) -> Summary:
        at = clean("du", path)
        r = await self.names.do(
            Call("du", at),
            "Namenode/Summary",
            pb.SummaryRequest(caller=self.caller, at=_follow(at)),
            pb.SummaryResponse,
        )
        return Summary(
            r.files, r.directories, r.symlinks, r.length, r.stored, r.open_files, r.snapshot_bytes, r.trash_bytes
        )

    async def mkdir(self, path: StrPath, mode: int | None = None, *, parents: bool = False, lease: int = 0) -> None:
        at = clean("mkdir", path)
        req = pb.MkdirRequest(caller=self.caller, at=pb.Ref(path=at), has_mode=True, parents=parents, lease=lease)
        req.mode, req.less = (mode, 0) if mode is not None else (0o777, self.config.umask)
        await self._mutate("mkdir", at, "Namenode/Mkdir", req)

    async def rename(
        self, source: StrPath, target: StrPath, *, overwrite: bool, detach: bool = False, unheld: bool = False
    ) -> None:
        a, b = clean("rename", source), clean("rename", target)
        to = pb.Ref(path=b)
        req = pb.RenameRequest(caller=self.caller, to=to, overwrite=overwrite, detach=detach, unheld=unheld)
        getattr(req, "from").path = a  # a word of the language
        await self._mutate("rename", a, "Namenode/Rename", req)

    async def remove(
        self, path: StrPath, *, recursive: bool = False, directory: bool = False, skip_trash: bool = False
    ) -> None:
        at = clean("remove", path)
        req = pb.DeleteRequest(caller=self.caller, at=pb.Ref(path=at), recursive=recursive, skip_trash=skip_trash)
        if directory:
            req.only = pb.FILE_TYPE_DIRECTORY
        await self._mutate("remove", at, "Namenode/Delete", req)

    async def symlink(self, target: str, path: StrPath) -> None:
        at = clean("symlink", path)
        if not is_utf8(target):
            raise InvalidArgumentError(
                f"the target {target!a} is not valid UTF-8; names here are", op="symlink", path=at
            )
        await self._mutate(
            "symlink", at, "Namenode/Symlink", pb.SymlinkRequest(caller=self.caller, at=pb.Ref(path=at), target=target)
        )

    async def readlink(self, path: StrPath) -> str:
        i = await self.stat(path, follow=False, op="readlink")
        if not i.is_symlink:
            raise InvalidArgumentError("it is no symbolic link", op="readlink", path=i.path)
        return i.link_target

    async def set_attr(
        self,
        op: str,
        path: StrPath,
        *,
        mode: int | None = None,
        user: str = "",
        group: str = "",
        mtime: float | None = None,
    ) -> None:
        at = clean(op, path)
        req = pb.SetAttrRequest(caller=self.caller, at=_follow(at), user=user, group=group)
        if mode is not None:
            req.set_mode, req.mode = True, mode
        if mtime is not None:
            req.set_mtime, req.mtime_unix_ms = True, round(mtime * 1000)
        await self._mutate(op, at, "Namenode/SetAttr", req)

    async def touch(self, path: StrPath) -> None:
        """Sets the modification time to now, by the namenode's clock."""
        await self.set_attr("chtimes", path, mtime=0.0)

    async def truncate(self, path: StrPath, length: int) -> None:
        at = clean("truncate", path)
        if length < 0:
            raise InvalidArgumentError(f"a length of {length} bytes: give 0 or more", op="truncate", path=at)
        await self._mutate(
            "truncate", at, "Namenode/Truncate", pb.TruncateRequest(caller=self.caller, at=_follow(at), length=length)
        )

    async def concat(self, target: StrPath, sources: Sequence[StrPath]) -> None:
        at = clean("concat", target)
        refs = [pb.Ref(path=clean("concat", s)) for s in sources]
        await self._mutate(
            "concat", at, "Namenode/Concat", pb.ConcatRequest(caller=self.caller, target=_follow(at), sources=refs)
        )

    async def xattrs(self, path: StrPath) -> dict[str, bytes]:
        at = clean("getfattr", path)
        r = await self.names.do(
            Call("getfattr", at),
            "Namenode/Xattrs",
            pb.XattrsRequest(caller=self.caller, at=_follow(at)),
            pb.XattrsResponse,
        )
        return {x.name: x.value for x in r.xattrs}

    async def set_xattr(self, path: StrPath, name: str, value: bytes | None) -> None:
        at = clean("setfattr", path)
        if not is_utf8(name):
            raise InvalidArgumentError(f"the name {name!a} is not valid UTF-8", op="setfattr", path=at)
        req = pb.SetXattrRequest(caller=self.caller, at=_follow(at), name=name, value=value or b"")
        req.action = pb.XATTR_ACTION_SET if value is not None else pb.XATTR_ACTION_REMOVE
        await self._mutate("setfattr", at, "Namenode/SetXattr", req)

    async def attach(self, lease: int, path: StrPath) -> None:
        at = clean("lease attach", path)
        await self._mutate(
            "lease attach",
            at,
            "Namenode/AttachLease",
            pb.AttachLeaseRequest(caller=self.caller, id=lease, at=pb.Ref(path=at)),
        )

    async def detach(self, path: StrPath) -> None:
        at = clean("lease detach", path)
        await self._mutate(
            "lease detach", at, "Namenode/DetachLease", pb.DetachLeaseRequest(caller=self.caller, at=pb.Ref(path=at))
        )

    # --- files open for write ---

    def _create_request(
        self, path: str, *, overwrite: bool, steal: bool, parents: bool, mode: int | None, lease: int
    ) -> pb.CreateRequest:
        return pb.CreateRequest(
            caller=self.caller,
            # As open(2) does: an existing file is replaced where a link leads; a new one is made at the path itself.
            at=_follow(path) if overwrite else pb.Ref(path=path),
            mode=mode or 0,
            has_mode=mode is not None,
            overwrite=overwrite,
            steal=steal,
            parents=parents,
            lease=lease,
            umask=self.config.umask,
        )

    async def create(
        self,
        path: StrPath,
        *,
        overwrite: bool = False,
        steal: bool = False,
        parents: bool = False,
        mode: int | None = None,
        lease: int = 0,
    ) -> CoreWriter:
        at = clean("create", path)
        self._may_open("create", at)
        req = self._create_request(at, overwrite=overwrite, steal=steal, parents=parents, mode=mode, lease=lease)

        async def ask() -> tuple[pb.OpenResponse, float]:
            sent = _clock.now()
            return await self._open(Call("create", at, mutates=True), "Namenode/Create", req), sent

        r, sent = await self._unless_own(ask)
        return await self._opened("create", at, r, sent)

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
        op: str = "append",
    ) -> CoreWriter:
        at = clean(op, path)
        until, settled = _clock.now() + wait, False
        while True:
            self._may_open(op, at)
            left = max(until - _clock.now(), 0.0)
            # The lease may be as old as the wait was long: well below its end.
            patience = min(left, _WAIT_SLICE, max(self.session.hard / 4, 0.1))
            req = pb.AppendRequest(
                caller=self.caller,
                at=_follow(at),
                create=create,
                parents=parents,
                wait_ms=int(patience * 1000),
                again=left > patience,
                mode=mode or 0,
                has_mode=mode is not None,
                umask=self.config.umask,
                lease=lease,
                has_expected_length=expected_length is not None,
                expected_length=expected_length or 0,
            )
            sent = _clock.now()
            try:
                r = await self._open(Call(op, at, mutates=True, wait=patience), "Namenode/Append", req)
            except HeldError as e:
                if not settled and await self._settled(e):
                    settled = True
                    continue
                if _clock.now() >= until:
                    e.op = op
                    raise
                if _clock.now() - sent < patience / 2:  # one that does not wait is not asked without pause
                    await asyncio.sleep(min(backoff(3), max(until - _clock.now(), 0.0)))
            else:
                return await self._opened(op, at, r, sent)

    async def lock(self, path: StrPath, *, wait: float) -> CoreWriter:
        w = await self.append(path, create=True, parents=True, wait=wait, op="lock")
        try:
            await w.renewed_for_long()
        except BaseException:
            w.forget()
            raise
        return w

    async def _opened(self, op: str, path: str, r: pb.OpenResponse, sent: float) -> CoreWriter:
        try:
            w = CoreWriter(self, path, r, sent)
        except LeasefsError as e:
            raise e.within(op, path) from e
        self.writers.add(w)
        if self.closed:
            await w.abort()
            raise ClosedError("the client was closed meanwhile", op=op, path=path)
        return w

    async def write_file(
        self, path: StrPath, data: bytes, *, overwrite: bool, parents: bool, mode: int | None, lease: int
    ) -> None:
        """A whole file, or nothing."""
        at = clean("create", path)
        self._may_open("create", at)
        if len(data) <= max_whole(self.session.welcome):
            req = self._create_request(at, overwrite=overwrite, steal=False, parents=parents, mode=mode, lease=lease)
            req.data, req.data_crc32c, req.close = data, _format.crc(data), True

            def ask() -> Awaitable[pb.OpenResponse]:
                c = Call("create", at, mutates=True, tail_too=bool(data))
                return self._open(c, "Namenode/Create", req)

            try:
                await self._unless_own(ask)
            except LeasefsError as e:
                if not data or not tail_refused(e):
                    raise
            else:
                return
        w = await self.begin_whole(at, overwrite=overwrite, parents=parents, mode=mode, lease=lease)
        try:
            await w.writer.write(bytearray(data))
            await w.publish()
        except BaseException:
            await w.discard()
            raise

    async def begin_whole(
        self, path: StrPath, *, overwrite: bool, parents: bool = False, mode: int | None = None, lease: int = 0
    ) -> WholeFile:
        """A file under a temporary name, which publish gives its own."""
        at = clean("create", path)
        self._may_open("create", at)
        place = await self.place(at, overwrite=overwrite)
        if overwrite and mode is None and place.mode is not None:
            mode = place.mode
        granted = lease or (await _granted.scratch(self)).id
        directory, _, name = place.path.rpartition("/")
        # The name is kept recognizable, and short enough.
        short = name.encode()[: _MAX_NAME - 32].decode("utf-8", "ignore")
        temporary = f"{directory}/.{short}.{secrets.token_hex(8)}.tmp"
        try:
            w = await self.create(temporary, parents=parents, mode=mode, lease=granted)
        except BaseException as e:
            self.spawn(self._drop(temporary))
            if isinstance(e, LeasefsError):
                e.path = at
            raise
        return WholeFile(self, w, temporary, place.path, overwrite=overwrite, detach=not lease)

    async def _drop(self, temporary: str) -> None:
        """Removes a file of which nobody knows whether it was made, since the answer was lost."""
        if await self.giveback.settle(self.session.hard):
            with contextlib.suppress(LeasefsError):
                await self.remove(temporary, skip_trash=True)

    async def place(self, path: str, *, overwrite: bool) -> _Place:
        """Where a whole file goes, and refuses what a create would refuse for what is there."""
        return await self._unless_own(lambda: self._place(path, overwrite=overwrite))

    async def _place(self, path: str, *, overwrite: bool) -> _Place:
        try:
            i = await self.stat(path, op="create")
        except NotFoundError:
            return _Place(path, None)
        if i.open is not None and not i.open.soft_expired:
            raise HeldError(
                "the file is open for write",
                op="create",
                path=path,
                holder=i.open.holder,
                takeable_in=i.open.takeable_in,
            )
        if not overwrite:
            raise ExistsError("it exists already", op="create", path=path)
        if i.is_dir:
            raise IsDirectoryError("it is a directory", op="create", path=path)
        req = pb.StatRequest(caller=self.caller, at=_follow(path), where=True)
        r = await self.names.do(Call("create", path), "Namenode/Stat", req, pb.StatResponse)
        return _Place(r.path or path, r.attr.mode)

    async def recover(self, path: StrPath, *, force: bool) -> Recovered:
        at = clean("recover", path)
        req = pb.RecoverRequest(caller=self.caller, at=_follow(at), force=force)
        r = await self.change(Call("recover", at, mutates=True), "Namenode/Recover", req, pb.RecoverResponse)
        return Recovered(r.was_open, r.length, r.epoch)

    # --- reading ---

    async def open(self, path: StrPath) -> CoreReader:
        at = clean("open", path)
        self._may_open("open", at)
        asked = _clock.now()
        req = pb.GetFileRequest(caller=self.caller, at=_follow(at))
        r = await self.names.do(Call("open", at), "Namenode/GetFile", req, pb.GetFileResponse)
        check_is_file(at, r.attr, "open")
        reader = CoreReader(self, at, r, asked)
        self.readers.add(reader)
        return reader

    async def read_file(self, path: StrPath, start: int = 0, end: int | None = None) -> bytes:
        """Bytes of a file, of one moment; negative positions count from its end."""
        for attempt in range(4):
            reader = await self.open(path)
            try:
                first, last, _ = slice(start, end).indices(reader.length)
                return await reader.read(first, max(last - first, 0))
            except TruncatedError:
                if attempt == 3:
                    raise
            finally:
                reader.close()
        raise AssertionError("unreachable")


class _Place:
    def __init__(self, path: str, mode: int | None) -> None:
        self.path = path
        self.mode = mode  # of what is there


class WholeFile:
    """A file that is written under a temporary name: should its writer die, it is deleted."""

    def __init__(
        self, core: Core, writer: CoreWriter, temporary: str, path: str, *, overwrite: bool, detach: bool
    ) -> None:
        self._core = core
        self.writer = writer
        self._temporary = temporary
        self._path = path
        self._overwrite = overwrite
        self._detach = detach

    def forget(self) -> None:
        """Nobody is left who could write it: it is removed."""
        if not self._core.closed:
            self._core.spawn(self._discard())

    async def publish(self, last: bytearray | None = None) -> None:
        """Writes the last bytes, closes it and gives it its name."""
        with self._core.awaited():  # the end of the session deletes what has no name yet
            await self._publish(last)

    async def _publish(self, last: bytearray | None) -> None:
        try:
            await self.writer.close(last)
            if self._overwrite:  # it may have been opened meanwhile, and older namenodes do not look
                await self._core.place(self._path, overwrite=True)
            await self._core.rename(
                self._temporary, self._path, overwrite=self._overwrite, detach=self._detach, unheld=True
            )
        except LeasefsError as e:
            await self.discard()
            e.op, e.path = "create", self._path
            raise
        except BaseException:  # who closes gave up
            self._core.spawn(self._discard())
            raise

    async def discard(self) -> None:
        """Removes it; else the end of its lease does. It continues if the caller gives up."""
        task = self._core.spawn(self._discard())
        await asyncio.wait({task})
        if not task.cancelled():  # as the end of the session does, which deletes the file, too
            task.result()

    async def _discard(self) -> None:
        with contextlib.suppress(LeasefsError):
            if not self.writer.closing:
                await self.writer.abort()
        with contextlib.suppress(LeasefsError):
            await self._core.remove(self._temporary, skip_trash=True)
