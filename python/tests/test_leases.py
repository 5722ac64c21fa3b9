"""Who has a file, and how it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Meddle, Namenode, as_ever, eventually

import leasefs
from leasefs import _clock
from leasefs._core import Core
from leasefs._loop import Loop


def test_held_and_lost(shared: Namenode, fs: leasefs.FileSystem, root: str) -> None:
    path = f"{root}/a"
    w = fs.create(path)
    w.write(b"flushed")
    w.flush()
    with leasefs.connect(shared.address, client="rival", user=fs.user) as rival:
        with pytest.raises(leasefs.HeldError, match="can be taken in") as held:
            rival.append(path)
        assert held.value.holder is not None
        assert held.value.holder.pid == os.getpid()
        assert held.value.takeable_in > 0
        with pytest.raises(leasefs.HeldError):
            rival.recover(path)
        assert rival.recover(path, force=True).length == 7
        eventually("the writer learns that its file was recovered", lambda: w.lost is not None)
        for call in (lambda: w.write(b"late"), w.flush, w.close):
            with pytest.raises(leasefs.LeaseLostError, match="recovered"):
                call()
        w.close()  # a second one does nothing
        assert w.remaining() == 0
    assert fs.read_file(path) == b"flushed"


def test_taken_over(own: Namenode) -> None:
    """A writer that was not heard of for its soft limit is replaced, and told by whom."""
    with leasefs.connect(own.address, ttl=1.0) as fs, leasefs.connect(own.address, client="rival") as rival:
        w = fs.create("/a")
        w.write(b"flushed")
        w.flush()
        w.write(b" late")
        fs._core.session._tasks[1].cancel()  # the renewals
        with rival.append("/a", wait=60) as taken:
            assert taken.took_over
            assert taken.token > w.token
            assert taken.tell() == 7
            with pytest.raises(leasefs.LeaseLostError, match="rival") as lost:
                w.flush()
            assert lost.value.holder is not None
            assert lost.value.holder.client == "rival"
            with pytest.raises(leasefs.LeaseLostError):
                w.close()


def test_loss_is_told(shared: Namenode, fs: leasefs.FileSystem, root: str) -> None:
    w = fs.create(f"{root}/a")
    with leasefs.connect(shared.address, client="rival") as rival:
        rival.remove(f"{root}/a")
    eventually("the writer learns that its file is deleted", lambda: w.lost is not None)
    with pytest.raises(leasefs.LeaseLostGoneError):
        w.close()


def test_wait_in_line(shared: Namenode, fs: leasefs.FileSystem, root: str) -> None:
    first = fs.create(f"{root}/a")
    first.write(b"1")
    got: list[leasefs.Writer] = []
    with leasefs.connect(shared.address, client="second") as other:
        t = threading.Thread(target=lambda: got.append(other.append(f"{root}/a", wait=60)))
        t.start()
        first.close()
        t.join()
        with got[0] as second:
            assert second.tell() == 1


def test_renewals_outlast_a_busy_program(own: Namenode) -> None:
    with leasefs.connect(own.address, ttl=1.0) as fs, fs.create("/a") as a, fs.create("/b") as b:
        until = time.monotonic() + 3
        while time.monotonic() < until:  # the interpreter is busy all the time
            sum(range(1000))
        for w in (a, b):
            w.write(b"still mine")
            w.flush()
            assert w.lost is None


def test_a_whole_file_spares_who_opens_last(
    shared: Namenode, fs: leasefs.FileSystem, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{root}/a"
    fs.write_file(path, b"old")
    rename = fs._core.rename
    with leasefs.connect(shared.address, client="rival", user=fs.user) as rival, contextlib.ExitStack() as writers:

        def late() -> None:
            w = writers.enter_context(rival.append(path))
            w.write(b" and acknowledged")
            w.flush()

        async def after(*args: Any, **options: Any) -> None:
            await asyncio.to_thread(late)
            await rename(*args, **options)

        monkeypatch.setattr(fs._core, "rename", after)
        with pytest.raises(leasefs.HeldError):
            fs.write_file(path, b"x" * (3 << 20), overwrite=True)
        assert fs.read_file(path) == b"old and acknowledged"


def test_lock(shared: Namenode, fs: leasefs.FileSystem, root: str) -> None:
    path = f"{root}/deep/lock"
    with fs.lock(path) as one:
        one.check()
        assert one.remaining() > 0
        with (
            leasefs.connect(shared.address, client="rival") as rival,
            pytest.raises(leasefs.HeldError, match=r"^lock "),
        ):
            rival.lock(path)
    assert one.remaining() == 0
    with fs.lock(path) as two:
        assert two.token > one.token
        fs.recover(path, force=True)
        eventually("the lock is lost", lambda: two.lost is not None)
        with pytest.raises(leasefs.LeaseLostError):
            two.check()
        with pytest.raises(leasefs.LeaseLostError):
            two.release()


def test_granted_leases(own: Namenode) -> None:
    with leasefs.connect(own.address) as fs:
        with fs.grant(15.0, name="worker-1") as lease:  # no stall of the machine ends it
            fs.mkdir("/workers")
            fs.write_file("/workers/1", b"me", lease=lease.id)
            fs.write_file("/workers/2", b"also")
            fs.attach(lease.id, "/workers/2")
            fs.detach("/workers/2")
            assert fs.stat("/workers/1").lease == lease.id
            with pytest.raises(leasefs.ExistsError):
                fs.grant(15.0, name="worker-1")
            started = lease.remaining()
            until = time.monotonic() + 1.2 * lease.ttl
            while time.monotonic() < until:
                time.sleep(0.05)
            assert lease.lost is None
            assert started > 0
            lease.check()
        assert not fs.exists("/workers/1")
        assert fs.exists("/workers/2")
        gone = fs.grant(60.0)
        fs.write_file("/x", b"", lease=gone.id)
        own.run("lease", "revoke", f"{gone.id:x}")
        gone.stop()
        with pytest.raises(leasefs.ClosedError):
            gone.check()
        assert not fs.exists("/x")


def test_a_suspended_machine(own: Namenode, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the clock says, and not the network, ends a lease that was not renewed."""
    with leasefs.connect(own.address) as fs:
        w = fs.create("/a")
        w.write(b"x")
        ahead = fs._core.session.hard + 1
        now = _clock.now
        own.stop()  # no renewal comes through
        try:
            monkeypatch.setattr(_clock, "now", lambda: now() + ahead)
            eventually("the writer gives up by its own clock", lambda: w.lost is not None)
            assert "hard limit" in str(w.lost)
        finally:
            monkeypatch.undo()
            own.cont()
        with pytest.raises(leasefs.LeaseLostError):
            w.close()


def test_a_lock_is_doubted_in_time(own: Namenode, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the soft limit on others may take a lock, also if nobody can tell its holder."""
    with leasefs.connect(own.address) as fs:
        lock = fs.lock("/lock")
        lock.check()
        now, ahead = _clock.now, fs._core.session.soft
        own.stop()  # no renewal comes through
        try:
            monkeypatch.setattr(_clock, "now", lambda: now() + ahead)
            with pytest.raises(leasefs.LeaseLostError, match="soft limit"):
                lock.check()
            assert isinstance(lock.lost, leasefs.LeaseLostError)
            assert lock.remaining() <= 0
        finally:
            monkeypatch.undo()
            own.cont()
        lock.check()
        lock.release()
        with pytest.raises(leasefs.LeaseLostError, match="released"):
            lock.check()
        assert lock.lost is None


def test_a_lock_after_a_long_wait(fs: leasefs.FileSystem, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease counts from when the call was sent, which may have waited for as long as that lasts."""
    opened = Core._opened

    async def late(self: Core, op: str, path: str, r: Any, sent: float) -> Any:
        return await opened(self, op, path, r, sent - self.session.soft)

    monkeypatch.setattr(Core, "_opened", late)
    with fs.lock(f"{root}/lock", wait=60) as lock:
        assert lock.remaining() > 0


def test_a_granted_lease_is_doubted_in_time(fs: leasefs.FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with fs.grant(60.0) as lease:
        now = _clock.now
        monkeypatch.setattr(_clock, "now", lambda: now() + lease.ttl)
        with pytest.raises(leasefs.LeaseLostError, match="may have ended"):
            lease.check()
        assert lease.lost is not None
        monkeypatch.undo()
        lease.check()
        assert lease.lost is None


def test_threads_share_a_writer(fs: leasefs.FileSystem, root: str) -> None:
    with fs.create(f"{root}/a") as w:

        def work(n: int) -> None:
            for i in range(50):
                w.write(f"{n}:{i:03};".encode() * 100)
                if i % 10 == 0:
                    w.flush()

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    pieces = fs.read_file(f"{root}/a").split(b";")[:-1]
    runs = [pieces[i : i + 100] for i in range(0, len(pieces), 100)]
    assert all(len(set(r)) == 1 for r in runs)  # each write's bytes stay together
    for n in range(4):
        mine = [r[0] for r in runs if r[0].startswith(b"%d:" % n)]
        assert mine == [b"%d:%03d" % (n, i) for i in range(50)]


def test_collected_writers(fs: leasefs.FileSystem, root: str) -> None:
    w = fs.create(f"{root}/a")
    w.write(b"flushed")
    w.flush()
    w.write(b" dropped")
    with pytest.warns(ResourceWarning, match="was not closed"):  # noqa: PT031
        del w
        gc.collect()
    eventually("the file is closed", lambda: fs.stat(f"{root}/a").open is None)
    assert fs.read_file(f"{root}/a") == b"flushed"
    f = fs.open(f"{root}/b", "w")
    f.write("dropped")
    with pytest.warns(ResourceWarning, match="was not closed"):  # noqa: PT031
        del f
        gc.collect()
    eventually("the file is closed", lambda: fs.stat(f"{root}/b").open is None)
    assert fs.read_file(f"{root}/b") == b""


def test_the_end_of_the_connection(shared: Namenode, fs: leasefs.FileSystem, root: str) -> None:
    """It closes what is open with all that was written, whoever has the bytes by then."""
    block = b"x" * (64 << 10)
    with leasefs.connect(shared.address) as other:
        small, large, text = other.create(f"{root}/a"), other.create(f"{root}/b"), other.open(f"{root}/c", "w")
        small.write(b"small")
        large.write(block)
        large.write(b"rest")
        text.write("a line\n")
        lock = other.lock(f"{root}/d")
    assert [fs.read_file(f"{root}/{n}") for n in "abc"] == [b"small", block + b"rest", b"a line\n"]
    assert [i.open for i in fs.listdir(root)] == [None] * 4
    assert small.closed
    assert text.closed
    text.close()
    with pytest.raises(leasefs.ClosedError):
        large.write(b"late")
    with pytest.raises(leasefs.LeaseLostError, match="released"):
        lock.check()


def test_closing_tries_all(shared: Namenode, fs: leasefs.FileSystem, root: str) -> None:
    other = leasefs.connect(shared.address)
    writers = [other.create(f"{root}/{n}") for n in "abc"]
    for w in writers:
        w.write(b"x")
    for n in "ac":
        fs.recover(f"{root}/{n}", force=True)
    with pytest.raises(leasefs.LeaseLostError) as e:
        other.close()
    assert len(e.value.__notes__) == 1
    assert other.closed
    assert [w.closed for w in writers] == [True] * 3
    assert [fs.read_file(f"{root}/{n}") for n in "abc"] == [b"", b"x", b""]


def test_writers_of_a_connection_that_was_forgotten(own: Namenode) -> None:
    """What was written before is dropped, which is told, and what is written later is refused."""
    fs = leasefs.connect(own.address)
    w = fs.create("/a")
    w.write(b"dropped")
    fs._loop.call_soon(fs._core.forget)
    eventually("the file is closed", lambda: not fs._core.writers)
    with pytest.raises(leasefs.ClosedError):
        w.write(b"late")
    with pytest.warns(ResourceWarning, match="was not closed"):  # noqa: PT031
        del w
        gc.collect()


def test_exceptions_abort_all(shared: Namenode, fs: leasefs.FileSystem, root: str) -> None:
    with pytest.raises(ZeroDivisionError), leasefs.connect(shared.address) as other:
        w = other.create(f"{root}/a")
        w.write(b"half")
        raise ZeroDivisionError
    assert w.closed
    info = fs.stat(f"{root}/a")
    assert (info.size, info.open) == (0, None)


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_exceptions_abort(fs: leasefs.FileSystem, root: str, mode: str) -> None:
    with pytest.raises(ZeroDivisionError), fs.open(f"{root}/a", mode) as f:
        f.write(b"half" if mode == "wb" else "half")
        raise ZeroDivisionError
    assert f.closed
    info = fs.stat(f"{root}/a")
    assert (info.size, info.open) == (0, None)


def test_close_after_a_trouble(fs: leasefs.FileSystem, root: str, meddle: Meddle) -> None:
    """A block that could not be stored is tried again before close gives its file up."""

    async def refuse(_: object) -> None:
        raise leasefs.NoSpaceError("there is no room")

    w = fs.create(f"{root}/a")
    block = bytes(fs._core.session.welcome.block_size)
    meddle("AllocateBlock", refuse)
    w.write(block)
    w.write(b"rest")
    eventually("the block is refused", lambda: w._core._block_error is not None)
    meddle("AllocateBlock", as_ever)
    w.close()
    assert fs.read_file(f"{root}/a") == block + b"rest"


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(leasefs.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", code, *args],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_end_of_the_program(shared: Namenode, fs: leasefs.FileSystem, root: str) -> None:
    code = """if True:
        import leasefs, sys
        fs = leasefs.connect(sys.argv[1])
        w = fs.create(sys.argv[2])
        w.write(b"flushed"); w.flush(); w.write(b" dropped")
        leasefs.keep = (fs, w)
    """
    p = python(code, shared.address, f"{root}/a")
    assert p.returncode == 0, p.stderr
    assert "ends with open files" in p.stderr
    info = fs.stat(f"{root}/a")
    assert (info.size, info.open) == (7, None)
    p = python("import leasefs, sys; fs = leasefs.connect(sys.argv[1]); fs.stat('/')", shared.address)
    assert (p.returncode, p.stderr) == (0, "")


@pytest.mark.parametrize(
    "when", ["atexit.register(rest)", "Thread(target=lambda: (main_thread().join(), rest())).start()"]
)
def test_after_main_has_returned(shared: Namenode, fs: leasefs.FileSystem, root: str, when: str) -> None:
    """Functions of atexit, and threads that outlive main, write and read whole blocks as ever."""
    code = f"""if True:
        import atexit, leasefs, sys
        from threading import Thread, main_thread
        fs = leasefs.connect(sys.argv[1])
        w = fs.create(sys.argv[2])
        def rest():
            w.write(bytes(20 << 20))
            w.close()
            assert fs.read_file(sys.argv[2]) == bytes(20 << 20)
            fs.close()
        {when}
    """
    p = python(code, shared.address, f"{root}/a")
    assert p.returncode == 0, p.stderr
    assert "Traceback" not in p.stderr, p.stderr
    info = fs.stat(f"{root}/a")
    assert (info.size, info.open) == (20 << 20, None)


def test_forks(shared: Namenode, fs: leasefs.FileSystem, root: str) -> None:
    w = fs.create(f"{root}/a")
    w.write(b"the parent's")
    code = """if True:
        import os, sys, leasefs
        fs = leasefs.connect(sys.argv[1])
        w = fs.create(sys.argv[2])
        w.write(b"parent")
        for _ in range(30):  # forked children live
            child = os.fork()
            if child == 0:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        child = os.fork()
        if child == 0:
            for call in (lambda: fs.stat("/"), w.flush, lambda: leasefs.connect(sys.argv[1])):
                try:
                    call()
                except leasefs.UnsupportedError as e:
                    assert "spawn" in str(e)
                else:
                    sys.exit("it works")
            del w, fs  # the parent's file stays open
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        w.close()
        fs.close()
    """
    p = python(code, shared.address, f"{root}/b")
    assert p.returncode == 0, p.stderr
    assert fs.read_file(f"{root}/b") == b"parent"
    w.close()
    # A process that has not connected before forks as it likes.
    code = """if True:
        import os, sys, leasefs
        child = os.fork()
        with leasefs.connect(sys.argv[1]) as fs:
            fs.write_file(sys.argv[2] + ("child" if child == 0 else "parent"), b"")
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    p = python(code, shared.address, f"{root}/of-")
    assert p.returncode == 0, p.stderr
    assert [i.name for i in fs.listdir(root)] == ["a", "b", "of-child", "of-parent"]


def test_an_interrupt(own: Namenode) -> None:
    with leasefs.connect(own.address) as fs:
        w = fs.create("/a")
        w.write(b"x")
        w.flush()
        own.stop()
        w.write(b"y")
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            fs.stat("/a")
        timer.join()
        own.cont()
        w.close()
        assert fs.read_file("/a") == b"xy"


def test_a_signal_handler_within_a_write(fs: leasefs.FileSystem, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused what it would wait for forever, and the bytes are in the file."""
    data = b"x" * (64 << 10)  # as many as are handed on
    w = fs.create(f"{root}/a")
    run = Loop.run

    def interrupted(self: Loop, coro: Any) -> Any:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGUSR1)
        return run(self, coro)

    refused: list[str] = []

    def handler(*_: object) -> None:
        for close in (fs.close, w.close):
            with pytest.raises(RuntimeError, match="signal handler") as e:
                close()
            refused.append(str(e.value))

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        monkeypatch.setattr(Loop, "run", interrupted)
        w.write(data)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == 2
    w.close()
    assert fs.read_file(f"{root}/a") == data


@pytest.mark.parametrize("closed", ["writer", "connection"])
def test_an_interrupt_before_close_has_begun(
    shared: Namenode, fs: leasefs.FileSystem, root: str, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    """The next close has all bytes."""
    other = leasefs.connect(shared.address)
    w = other.create(f"{root}/a")
    w.write(b"all")
    closing = w if closed == "writer" else other

    def interrupt(_: object, coro: Any) -> None:
        coro.close()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Loop, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            closing.close()
    other.close()
    assert w.closed
    assert fs.read_file(f"{root}/a") == b"all"


def test_whole_files_after_a_suspend(own: Namenode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease of temporary files is over by the clock: it is kept alive once more, or else granted again."""
    data = b"x" * (3 << 20)
    now, ahead = _clock.now, 0.0
    monkeypatch.setattr(_clock, "now", lambda: now() + ahead)
    with leasefs.connect(own.address) as fs:
        fs.write_file("/a", data)
        for ended in (False, True):
            before = fs._core.scratch
            assert before is not None
            if ended:
                own.run("lease", "revoke", f"{before.id:x}")
            ahead += before.ttl
            fs.write_file("/a", data, overwrite=True)
            assert (fs._core.scratch is not before) is ended
        assert [i.name for i in fs.listdir("/")] == ["a"]
