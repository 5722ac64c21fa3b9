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
from conftest import Namenode, eventually

import leasefs
from leasefs import _clock


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


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_exceptions_abort(fs: leasefs.FileSystem, root: str, mode: str) -> None:
    with pytest.raises(ZeroDivisionError), fs.open(f"{root}/a", mode) as f:
        f.write(b"half" if mode == "wb" else "half")
        raise ZeroDivisionError
    assert f.closed
    info = fs.stat(f"{root}/a")
    assert (info.size, info.open) == (0, None)


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(leasefs.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", code, *args], env=env, capture_output=True, text=True, check=False
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
