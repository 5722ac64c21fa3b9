"""Files, directories and attributes, by the synchronous face."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import PurePosixPath

import pytest
from conftest import Namenode, eventually

import leasefs


def test_write_flush_read(fs: leasefs.FileSystem, root: str) -> None:
    with fs.create(f"{root}/a") as w:
        assert w.write(b"one ") == 4
        w.flush()
        assert w.durable == 4
        assert fs.read_file(f"{root}/a") == b"one "
        info = fs.stat(f"{root}/a")
        assert info.open is not None
        assert info.open.holder.client == fs.client
        assert info.open.token == w.token
        w.write(memoryview(b"two"))
        assert w.tell() == 7
    assert fs.read_file(f"{root}/a") == b"one two"
    assert fs.stat(f"{root}/a").open is None
    with fs.append(f"{root}/a", expected_length=7) as again:
        assert again.token > w.token
        again.write(b" three")
    assert fs.read_file(f"{root}/a", 4, -2) == b"two thr"
    with pytest.raises(leasefs.NotAtEndError) as e:
        fs.append(f"{root}/a", expected_length=7)
    assert e.value.length == 13


def test_open_modes(fs: leasefs.FileSystem, root: str) -> None:
    path = PurePosixPath(root) / "text"
    with fs.open(path, "w") as f:
        f.write("grüße\n")
    with fs.open(path, "a") as f:
        f.write("bye\n")
    with fs.open(path) as f:
        assert f.readlines() == ["grüße\n", "bye\n"]
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    with fs.open(path, "rb") as b:
        b.seek(-4, io.SEEK_END)
        assert b.read() == b"bye\n"
    with pytest.raises(leasefs.InvalidArgumentError):
        fs.open(path, "r+")
    with fs.open(path, "rb", buffering=0) as raw:
        assert raw.pread(4, 1) == b"r\xc3\xbc\xc3"
        assert raw.readall().decode() == "grüße\nbye\n"


def test_blocks_and_ranges(fs: leasefs.FileSystem, root: str) -> None:
    content = os.urandom(20 << 20) + b"end"
    with fs.open(f"{root}/big", "wb") as w:
        for i in range(0, len(content), 1_000_003):
            w.write(content[i : i + 1_000_003])
            if i == 3_000_009:
                w.flush()
    assert fs.read_file(f"{root}/big") == content
    with fs.open(f"{root}/big", "rb") as f:
        got = bytearray()
        while piece := f.read(777_777):
            got += piece
        assert got == content
    with fs.open(f"{root}/big", "rb", buffering=0) as raw:
        for offset, length in [(0, 1), (65_535, 2), (8 << 20, 70_000), ((8 << 20) - 5, 10), (len(content) - 4, 100)]:
            assert raw.pread(length, offset) == content[offset : offset + length]
    with fs.append(f"{root}/big") as w:
        w.write(content)
    assert fs.read_file(f"{root}/big") == content + content
    s = fs.summary(root)
    assert (s.files, s.length) == (1, 2 * len(content))


def test_what_the_trash_has(fs: leasefs.FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d")
    fs.set_xattr(f"{root}/d", "user.leasefs.trash", b"1d")
    fs.write_file(f"{root}/d/a", b"12345")
    fs.remove(f"{root}/d/a")
    eventually("it is counted", lambda: fs.summary(f"{root}/d").trash_bytes == 5)
    assert fs.summary(root).length == 0


def test_whole_files(fs: leasefs.FileSystem, root: str) -> None:
    for size in (0, 10, 3 << 20):
        path = f"{root}/new/{size}"
        fs.write_file(path, b"x" * size, parents=True, mode=0o600)
        assert fs.stat(path).size == size
        assert fs.stat(path).mode & 0o777 == 0o600
        with pytest.raises(leasefs.ExistsError):
            fs.write_file(path, b"y" * size)
        fs.write_file(path, b"y" * size, overwrite=True)
        assert fs.read_file(path) == b"y" * size
        assert fs.stat(path).lease == 0
        with fs.append(path), pytest.raises(leasefs.HeldError):
            fs.write_file(path, b"z" * size, overwrite=True)
    assert [i.name for i in fs.listdir(f"{root}/new")] == ["0", "10", str(3 << 20)]  # nothing temporary


def test_tree(fs: leasefs.FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d/e", parents=True)
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{root}/d")
    fs.write_file(f"{root}/d/e/f", b"abc")
    fs.rename(f"{root}/d/e/f", f"{root}/d/g")
    fs.symlink("g", f"{root}/d/link")
    assert fs.readlink(f"{root}/d/link") == "g"
    assert fs.read_file(f"{root}/d/link") == b"abc"
    assert fs.lstat(f"{root}/d/link").is_symlink
    assert [(i.path.removeprefix(root), i.is_dir) for i in fs.walk(root)] == [
        ("/d", True),
        ("/d/e", True),
        ("/d/g", False),
        ("/d/link", False),
    ]
    fs.chmod(f"{root}/d/g", 0o640)
    fs.utime(f"{root}/d/g", 1_000_000.5)
    info = fs.stat(f"{root}/d/g")
    assert (info.mode & 0o7777, info.mtime, info.size, info.is_file) == (0o640, 1_000_000.5, 3, True)
    fs.truncate(f"{root}/d/g", 1)
    fs.write_file(f"{root}/d/h", b"xyz")
    fs.concat(f"{root}/d/g", [f"{root}/d/h"])
    assert fs.read_file(f"{root}/d/g") == b"axyz"
    fs.set_xattr(f"{root}/d/g", "user.tag", b"\0v")
    assert fs.xattrs(f"{root}/d/g") == {"user.tag": b"\0v"}
    fs.remove_xattr(f"{root}/d/g", "user.tag")
    with pytest.raises(leasefs.NotFoundError):
        fs.remove_xattr(f"{root}/d/g", "user.tag")
    with pytest.raises(NotADirectoryError):
        fs.rmdir(f"{root}/d/g")
    with pytest.raises(leasefs.NotEmptyError):
        fs.remove(f"{root}/d")
    fs.rmtree(f"{root}/d")
    assert not fs.exists(f"{root}/d")
    with pytest.raises(FileNotFoundError):
        fs.rmtree(f"{root}/d")


def test_listing_in_pages(fs: leasefs.FileSystem, root: str) -> None:
    names = [f"{i:03}" for i in range(25)]
    for n in names:
        fs.write_file(f"{root}/{n}", b"")
    assert [i.name for i in fs.listdir(root, page=10)] == names
    pages = fs.listdir(root, page=10)
    assert next(pages).name == "000"
    fs.rename(root, root + "-moved")  # the listing continues in the directory, wherever it is
    assert [i.name for i in pages] == names[1:]
    with pytest.raises(FileNotFoundError):
        next(fs.listdir(root))
    with pytest.raises(NotADirectoryError):
        next(fs.listdir(f"{root}-moved/000"))


@pytest.mark.parametrize("path", ["relative", "", "/a/../b", "/a/./b", "/nul\0", "/\udcff", b"/bytes"])
def test_bad_paths(fs: leasefs.FileSystem, path: str) -> None:
    with pytest.raises(leasefs.InvalidPathError) as e:
        fs.stat(path)
    str(e.value).encode()  # it can be printed
    assert isinstance(e.value, ValueError)


def test_long_names(fs: leasefs.FileSystem) -> None:
    with pytest.raises(leasefs.NameTooLongError):
        fs.stat("/" + "x" * 256)
    with pytest.raises(leasefs.NameTooLongError):
        fs.stat("/x" * 1025)


def test_errors_are_pickled(fs: leasefs.FileSystem, shared: Namenode, root: str) -> None:
    with leasefs.connect(shared.address) as other, fs.create(f"{root}/held"), pytest.raises(leasefs.HeldError) as e:
        other.append(f"{root}/held")
    again = pickle.loads(pickle.dumps(e.value))
    assert type(again) is leasefs.HeldError
    assert str(again) == str(e.value)
    assert again.holder == e.value.holder
    assert again.holder is not None
    assert again.holder.client == fs.client
    assert again.filename == f"{root}/held"


def test_connect_refuses() -> None:
    for wrong in (
        {"namenodes": "nowhere"},
        {"timeout": 0},
        {"timeout": 121},
        {"token": "x", "namenodes": "example.org:1"},
        {"token": "x", "token_file": "/y"},
        {"token_file": "/does/not/exist"},
        {"tls_cert": "/x"},
        {"tls_ca": "/does/not/exist"},
        {"user": "\udcff"},
        {"umask": -1},
    ):
        with pytest.raises(leasefs.InvalidArgumentError):
            leasefs.connect(**wrong)
    with pytest.raises(leasefs.UnavailableError, match=r"127\.0\.0\.1:1 within 1s.*start one"):
        leasefs.connect("127.0.0.1:1", timeout=1)
