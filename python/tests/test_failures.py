"""Namenodes that die or say nothing, blocks that are damaged or missing, and proofs of who calls."""

from __future__ import annotations

import asyncio
import getpass
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import BINARY, Meddle, Namenode, Send, as_ever, eventually, lose_the_answer

import leasefs
from leasefs._store import StoreError


def test_a_killed_namenode_loses_nothing(own: Namenode) -> None:
    """Lines of which a flush has returned are in the file, once, whatever became of the namenode meanwhile."""
    lines = 300
    killed = threading.Event()
    acknowledged = 0
    with leasefs.connect(own.address) as fs, fs.create("/log") as w:

        def kill() -> None:
            for n in (50, 150):
                while acknowledged < n:
                    killed.wait(0.001)
                own.restart()
            killed.set()

        t = threading.Thread(target=kill)
        t.start()
        i = 0
        while i < lines or not killed.is_set():
            w.write(f"{i:06}\n".encode())
            w.flush()
            i += 1
            acknowledged = i
        t.join()
        assert fs.read_file("/log") == b"".join(f"{k:06}\n".encode() for k in range(i))
        big = bytes(range(256)) * 4096 * 12  # 12 MiB
        t = threading.Thread(target=own.restart)
        for k in range(0, len(big), 1 << 20):
            w.write(big[k : k + (1 << 20)])
            if k == 4 << 20:
                t.start()
        w.flush()
        t.join()
    with leasefs.connect(own.address) as fs:
        assert fs.read_file("/log")[7 * i :] == big
        assert fs.stat("/log").open is None


def test_changes_happen_once_over_a_restart(own: Namenode) -> None:
    with leasefs.connect(own.address) as fs:
        fs.mkdir("/d")
        done = threading.Event()

        def restart() -> None:
            own.restart()
            done.set()

        t = threading.Thread(target=restart)
        t.start()
        n = 0
        while not done.is_set() or n < 50:
            fs.mkdir(f"/d/{n}")  # a repetition must not find that it exists
            fs.rename(f"/d/{n}", f"/d/{n}-moved")
            n += 1
        t.join()
        assert len(list(fs.listdir("/d"))) == n


def test_a_silent_namenode(own: Namenode) -> None:
    with leasefs.connect(own.address, timeout=8) as fs:  # more than the machine stalls for
        own.stop()
        with pytest.raises(leasefs.UnavailableError, match="within 8s"):
            fs.stat("/")
        with pytest.raises(leasefs.UnavailableError, match="whether it happened is not known"):
            fs.mkdir("/maybe")
        own.cont()
        fs.mkdir("/surely")


@pytest.mark.parametrize("method", ["Create", "Append"])
def test_a_lost_opening_is_given_back(own: Namenode, meddle: Meddle, method: str) -> None:
    """What the namenode opened and could not tell keeps the file from nobody."""
    with leasefs.connect(own.address) as fs:

        def opened() -> leasefs.Writer:
            return fs.create("/a", overwrite=True) if method == "Create" else fs.append("/a", create=True)

        meddle(method, lose_the_answer)
        with pytest.raises(leasefs.CanceledError):
            opened()
        meddle(method, as_ever)
        opened().close()
        ids = fs._core.names.ids
        eventually("no id is kept", lambda: ids._low == ids._next)


@pytest.mark.parametrize("size", [1, 3 << 20])
def test_a_lost_opening_keeps_no_whole_file_back(own: Namenode, meddle: Meddle, size: int) -> None:
    with leasefs.connect(own.address) as fs:
        fs.write_file("/a", b"old")
        asked = asyncio.Event()

        async def late(send: Send) -> Any:
            await asked.wait()
            return await send()

        async def held(send: Send) -> Any:
            try:
                return await send()
            finally:
                asked.set()

        meddle("CancelOpen", late)
        meddle("Append", lose_the_answer)
        with pytest.raises(leasefs.CanceledError):
            fs.append("/a")
        meddle("Create" if size == 1 else "Stat", held)
        fs.write_file("/a", b"x" * size, overwrite=True)
        assert asked.is_set()
        assert fs.stat("/a").size == size


def test_a_lost_opening_is_given_back_after_a_restart(own: Namenode, meddle: Meddle) -> None:
    async def lose(_: object) -> None:
        raise leasefs.UnavailableError("it does not get through")

    with leasefs.connect(own.address) as fs:
        meddle("CancelOpen", lose)
        meddle("Append", lose_the_answer)
        with pytest.raises(leasefs.CanceledError):
            fs.append("/a", create=True)
        own.restart()
        assert fs.stat("/a").open is not None
        meddle("CancelOpen", as_ever)
        eventually("the file is closed", lambda: fs.stat("/a").open is None)


def blocks(own: Namenode) -> list[Path]:
    return sorted(own.folder.rglob("*.blk"))


def test_damage_is_found(own: Namenode) -> None:
    content = bytes(range(256)) * 4096 * 9  # 9 MiB: a block and a bit
    with leasefs.connect(own.address, timeout=30) as fs:
        fs.write_file("/a", content)
        first = blocks(own)[0]
        original = first.read_bytes()
        first.chmod(0o600)
        first.write_bytes(original[:200_000] + b"\xff" + original[200_001:])
        with pytest.raises(leasefs.DamagedError, match="damaged at offset 196608 of the file"):
            fs.read_file("/a")
        with pytest.raises(leasefs.DamagedError, match=r"/a.*damaged at offset 196608 of the file"):
            fs.read_file("/a", 199_000, 201_000)
        assert fs.read_file("/a", 0, 100_000) == content[:100_000]  # another chunk
        first.write_bytes(original[:-1])
        with pytest.raises(leasefs.DamagedError):
            fs.read_file("/a", 0, 100)
        first.unlink()
        with pytest.raises(leasefs.DamagedError, match="missing"):
            fs.read_file("/a", 0, 100)
        first.write_bytes(original)
        assert fs.read_file("/a") == content


def test_truncated_under_a_reader(fs: leasefs.FileSystem, root: str) -> None:
    content = b"x" * (20 << 20)
    fs.write_file(f"{root}/a", content)
    with fs.open(f"{root}/a", "rb", buffering=0) as r:
        assert r.pread(10, 0) == b"x" * 10
        fs.rename(f"{root}/a", f"{root}/b")
        assert r.pread(10, 9 << 20) == b"x" * 10
        fs.truncate(f"{root}/b", 5)
        fs.read_file(f"{root}/b")
        r._core._pages.clear()  # its URLs are over
        with pytest.raises(leasefs.TruncatedError):
            r.pread(10, 17 << 20)


def test_reads_at_once(shared: Namenode, fs: leasefs.FileSystem, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of more blocks than a reader keeps do not take them from each other."""
    size = fs._core.session.welcome.block_size
    content = b"a" * size + b"b" * size
    fs.write_file(f"{root}/a", content)
    with leasefs.connect(shared.address, read_ahead=0) as other:
        asked: list[str] = []
        enough = threading.Event()
        get = other._core.store.get

        def slowly(url: str, *args: Any) -> bytearray:
            asked.append(url)
            enough.wait()
            return get(url, *args)

        monkeypatch.setattr(other._core.store, "get", slowly)
        with other.open(f"{root}/a", "rb", buffering=0) as r, ThreadPoolExecutor() as pool:
            reads = [pool.submit(r.pread, size, at) for at in (0, size)]
            try:
                eventually("both are under way", lambda: len(set(asked)) == 2)
            finally:
                enough.set()
            assert b"".join(read.result() for read in reads) == content
            assert len(r._core._held) == 1


def test_a_read_ahead_that_failed_is_forgotten(
    fs: leasefs.FileSystem, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = fs._core.session.welcome.block_size
    fs.write_file(f"{root}/a", b"a" * size + b"b" * size)
    with fs.open(f"{root}/a", "rb", buffering=0) as r:
        second = r._core._pages[0].blocks[1].url
        failed = threading.Event()
        get = fs._core.store.get

        def fail(url: str, *args: Any) -> bytearray:
            if url == second:
                failed.set()
                raise StoreError("it is refused", 400)
            return get(url, *args)

        monkeypatch.setattr(fs._core.store, "get", fail)
        assert r.read(10) + r.read(10) == b"a" * 20  # from front to back
        failed.wait()
        eventually("nothing is under way", lambda: all(f.task.done() for f in list(r._core._held.values())))
        monkeypatch.undo()
        assert r.pread(size, size) == b"b" * size


def test_tls_and_tokens(tmp_path: Path) -> None:
    def admin(*args: str) -> str:
        return subprocess.run([BINARY, "admin", *args], check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    admin("ca", "ca")
    admin("ca", "--host", "127.0.0.1", "ca", "nn")
    admin("ca", "ca", "ann")
    admin("ca", "ca", getpass.getuser())  # the superuser
    (tmp_path / "tokens").write_text(admin("token", "ci.token", "ci"))

    def file(name: str) -> str:
        found = list(tmp_path.rglob(name))
        assert found, name
        return str(found[0])

    flags = ["--tls-cert", file("nn.pem"), "--tls-key", file("nn.key"), "--tls-client-ca", file("ca.pem")]
    n = Namenode(tmp_path / "data", *flags, "--tokens", file("tokens"))
    try:
        ca = file("ca.pem")
        me, big = getpass.getuser(), b"b" * (9 << 20)
        with leasefs.connect(n.address, tls_ca=ca, tls_cert=file(me + ".pem"), tls_key=file(me + ".key")) as fs:
            fs.write_file("/shared/big", big, parents=True)  # blocks go over TLS, too
        with leasefs.connect(n.address, tls_ca=ca, tls_cert=file("ann.pem"), tls_key=file("ann.key"), timeout=30) as fs:
            assert fs.user == "ann"
            with pytest.raises(leasefs.PermissionDeniedError):
                fs.write_file("/a", b"")  # the root is another's
        with pytest.raises(leasefs.PermissionDeniedError):
            leasefs.connect(n.address, tls_ca=ca, token="wrong", timeout=30)
        with pytest.raises(leasefs.PermissionDeniedError):
            leasefs.connect(n.address, tls_ca=ca, user="ann", token_file=file("ci.token"), timeout=30)
        with leasefs.connect(n.address, tls_ca=ca, token_file=file("ci.token"), timeout=30) as fs:
            assert fs.user == "ci"
            assert [i.name for i in fs.listdir("/shared")] == ["big"]
            assert fs.read_file("/shared/big") == big
            token = Path(file("ci.token")).read_text().split()[1]
            assert token not in repr(fs._core.config)
        Path(file("ci.token")).chmod(0o640)
        with pytest.raises(leasefs.PermissionDeniedError, match="others may read it"):
            leasefs.connect(n.address, tls_ca=ca, token_file=file("ci.token"), timeout=30)
    finally:
        n.end()


def test_a_lost_creation_of_a_whole_file(own: Namenode, meddle: Meddle) -> None:
    """Its temporary file may have been made: it is removed."""
    with leasefs.connect(own.address) as fs:
        meddle("Create", lose_the_answer)
        with pytest.raises(leasefs.CanceledError):
            fs.write_file("/a", b"x" * (3 << 20))
        meddle("Create", as_ever)
        eventually("the temporary file is removed", lambda: not list(fs.listdir("/")))
