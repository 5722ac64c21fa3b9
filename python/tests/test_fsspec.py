"""fsspec's own tests of a file system, and pandas and pyarrow on it."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from conftest import Meddle, Namenode, Send, as_ever, eventually
from fsspec.tests import abstract

import leasefs
from leasefs.spec import LeasefsFileSystem


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, shared: Namenode) -> Any:
        return fsspec.filesystem("leasefs", namenodes=shared.address)

    @pytest.fixture
    def fs_path(self, fs: Any) -> Iterator[str]:
        fs.makedirs("/spec", exist_ok=True)
        yield "/spec"
        fs.rm("/spec", recursive=True)

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(parts)


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


@pytest.fixture
def url(shared: Namenode) -> str:
    return f"leasefs://{shared.address}"


def test_pandas(url: str) -> None:
    frame = pd.DataFrame({"n": range(100_000), "name": [f"row {i}" for i in range(100_000)]})
    frame.to_parquet(f"{url}/pandas/a.parquet")
    frame.to_csv(f"{url}/pandas/a.csv", index=False)
    frame.to_csv(f"{url}/pandas/a.csv.gz", index=False)
    for got in (
        pd.read_parquet(f"{url}/pandas/a.parquet"),
        pd.read_csv(f"{url}/pandas/a.csv"),
        pd.read_csv(f"{url}/pandas/a.csv.gz"),
    ):
        pd.testing.assert_frame_equal(got, frame)


def test_pyarrow(url: str) -> None:
    fs, path = fsspec.url_to_fs(f"{url}/arrow/set")
    # More than a block of bytes that do not shrink.
    table = pa.table({"n": range(1_500_000), "part": [i % 3 for i in range(1_500_000)]})
    pq.write_table(table, f"{path}/one.parquet", filesystem=fs, compression="none", use_dictionary=False)
    assert fs.size(f"{path}/one.parquet") > 8 << 20
    assert pq.read_table(f"{path}/one.parquet", filesystem=fs) == table
    column = pq.read_table(f"{path}/one.parquet", filesystem=fs, columns=["part"], filters=[("n", ">", 1_499_990)])
    assert column["part"].to_pylist() == [i % 3 for i in range(1_499_991, 1_500_000)]
    ds.write_dataset(table, f"{path}/parts", format="parquet", partitioning=["part"], filesystem=fs)
    assert ds.dataset(f"{path}/parts", partitioning=["part"], filesystem=fs).count_rows() == table.num_rows


def test_urls(shared: Namenode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEFS_NAMENODE", shared.address)
    with fsspec.open("leasefs:///urls/a", "wb") as f:
        f.write(b"abc")
    fs = fsspec.filesystem("leasefs")
    assert fs.cat("/urls/a") == b"abc"
    assert fs.unstrip_protocol("/urls/a") == f"leasefs://{shared.address}/urls/a"
    assert fsspec.open(fs.unstrip_protocol("urls/a")).path == "/urls/a"
    assert fs._strip_protocol(["leasefs://h:1,i:2/x/", "leasefs://h:1"]) == ["/x", "/"]


def test_whole_or_not_at_all(url: str, shared: Namenode) -> None:
    fs, _ = fsspec.url_to_fs(url)
    assert isinstance(fs, LeasefsFileSystem)
    fs.pipe("/whole/a", b"old")
    fs.files.set_xattr("/whole", "user.leasefs.trash", b"1d")
    f = fs.open("/whole/a", "wb")
    f.write(b"new")
    f.flush()
    assert fs.cat("/whole/a") == b"old"
    f.close()
    assert fs.cat("/whole/a") == b"new"
    with pytest.raises(ZeroDivisionError), fs.open("/whole/a", "wb") as f:
        f.write(b"half")
        raise ZeroDivisionError
    assert fs.cat("/whole/a") == b"new"
    with pytest.raises(FileExistsError):
        fs.open("/whole/a", "xb")
    with fs.open("/whole/a", "ab") as f:
        f.write(b"er")
    assert fs.cat("/whole/a", start=-2) == b"er"
    assert fs.ls("/whole", detail=False) == ["/whole/a"]
    trash = shared.run("trash", "ls", "/whole").splitlines()[1:]
    assert [line.split()[-1] for line in trash] == ["/whole/a"]  # which was replaced; nothing half


def test_an_interrupted_close_leaves_nothing(own: Namenode, meddle: Meddle) -> None:
    main = threading.main_thread().ident
    assert main is not None

    async def interrupt(_: object) -> None:
        meddle("Close", as_ever)
        signal.pthread_kill(main, signal.SIGINT)
        await asyncio.Event().wait()

    fs = LeasefsFileSystem(own.address, skip_instance_cache=True)
    f = fs.open("/d/a", "wb")
    f.write(b"x" * (3 << 20))
    meddle("Close", interrupt)
    with pytest.raises(KeyboardInterrupt):
        f.close()
    f.abort()  # does nothing
    eventually("the temporary file is removed", lambda: not list(fs.files.listdir("/d")))
    fs.files.close()


def test_the_connection_ends_while_a_file_is_dropped(own: Namenode, meddle: Meddle) -> None:
    """The end of the session removes it, and no error of asyncio comes out of abort."""
    asked = threading.Event()

    async def never(_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    fs = LeasefsFileSystem(own.address, skip_instance_cache=True)
    f = fs.open("/d/a", "wb")
    f.write(b"x")
    meddle("Delete", never)
    with ThreadPoolExecutor() as pool:
        dropped = pool.submit(f.abort)
        assert asked.wait(60)
        fs.files.close()
        dropped.result()
    with leasefs.connect(own.address) as other:
        assert not list(other.listdir("/d"))


def test_the_connection_ends_after_a_file_has_its_name(own: Namenode, meddle: Meddle) -> None:
    """A file that another thread closes is not deleted before it is published."""
    fs = LeasefsFileSystem(own.address, skip_instance_cache=True)
    asked = threading.Event()

    async def late(send: Send) -> Any:
        asked.set()
        while fs._core._leaving is None:
            await asyncio.sleep(0)
        for _ in range(1000):  # in which the session would end
            await asyncio.sleep(0)
        return await send()

    f = fs.open("/d/a", "wb")
    f.write(b"x")
    meddle("Rename", late)
    with ThreadPoolExecutor() as pool:
        closed = pool.submit(f.close)
        assert asked.wait(60)
        fs.files.close()
        closed.result()
    with leasefs.connect(own.address) as other:
        assert other.read_file("/d/a") == b"x"


def test_transactions(url: str, shared: Namenode) -> None:
    fs, _ = fsspec.url_to_fs(url)
    with fs.transaction:
        with fs.open("/tx/a", "wb") as f:
            f.write(b"a")
        assert not fs.exists("/tx/a")
    assert fs.cat("/tx/a") == b"a"
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open("/tx/b", "wb") as f:
            f.write(b"b")
        raise ZeroDivisionError
    assert fs.ls("/tx", detail=False) == ["/tx/a"]
    other = LeasefsFileSystem(shared.address, skip_instance_cache=True)
    with pytest.raises(leasefs.ClosedError), other.transaction:
        with other.open("/tx/b", "wb") as f:
            f.write(b"b")
        other.files.close()
    assert fs.ls("/tx", detail=False) == ["/tx/a"]


def test_a_file_outlives_its_file_system(own: Namenode) -> None:
    f = LeasefsFileSystem(own.address, skip_instance_cache=True).open("/a", "wb")
    gc.collect()
    f.write(b"x")
    with leasefs.connect(own.address) as fs:
        f.close()
        assert fs.read_file("/a") == b"x"


def test_rename_moves_no_byte(url: str) -> None:
    fs, _ = fsspec.url_to_fs(url)
    fs.pipe({"/mv/a/x": b"x", "/mv/a/y": b"y"})
    inode = fs.info("/mv/a/x")["ino"]
    fs.mv("/mv/a", "/mv/b", recursive=True)
    assert fs.info("/mv/b/x")["ino"] == inode
    assert not fs.exists("/mv/a")
    fs.touch("/mv/b/x", truncate=False)
    assert fs.cat("/mv/b/x") == b"x"
    assert fs.modified("/mv/b/x").year > 2000
    fs.rm("/mv/b/*")
    assert fs.ls("/mv/b") == []
    fs.rmdir("/mv/b")


def test_rename_takes_paths(url: str) -> None:
    fs, _ = fsspec.url_to_fs(url)
    fs.pipe("/mvp/a", b"x")
    inode = fs.info("/mvp/a")["ino"]
    fs.mv(PurePosixPath("/mvp/a"), PurePosixPath("/mvp/new/b"))
    assert fs.info("/mvp/new/b")["ino"] == inode
    fs.mv("/mvp/new/b", PurePosixPath("/mvp"))  # into a directory
    assert fs.info("/mvp/b")["ino"] == inode


def test_rename_of_nothing_makes_nothing(url: str) -> None:
    fs, _ = fsspec.url_to_fs(url)
    with pytest.raises(FileNotFoundError):
        fs.mv("/none", "/mvn/deep/a")
    assert not fs.exists("/mvn")


def test_remove_as_deep_as_asked(url: str) -> None:
    fs, _ = fsspec.url_to_fs(url)
    fs.pipe({"/rmd/a": b"a", "/rmd/d/b": b"b"})
    with pytest.raises(leasefs.NotEmptyError):  # what is deeper is not asked for
        fs.rm("/rmd", recursive=True, maxdepth=1)
    assert fs.exists("/rmd/d/b")
    fs.rm("/rmd", recursive=True, maxdepth=2)
    assert not fs.exists("/rmd")


def test_leases_by_fsspec(url: str) -> None:
    fs, _ = fsspec.url_to_fs(url)
    with fs.files.lock("/lock") as lock:
        assert lock.token > 0
        assert lock.remaining() > 0
    assert isinstance(fs.files, leasefs.FileSystem)
