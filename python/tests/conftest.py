"""A real namenode for the tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import leasefs
from leasefs._names import Node

BINARY = os.environ.get("LEASEFS_BINARY") or str(Path(__file__).parents[2] / "bin" / "leasefs")


def eventually(what: str, ok: Callable[[], bool]) -> None:
    """Waits until something is so, for as long as a stalled machine may take."""
    until = time.monotonic() + 60
    while not ok():
        assert time.monotonic() < until, what
        time.sleep(0.02)


class Namenode:
    """A namenode in a folder of its own, which can be killed and started again."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.flags = flags
        self.address = "127.0.0.1:0"
        self.http = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        argv = [
            BINARY,
            "namenode",
            "--data",
            str(self.folder),
            "--listen",
            self.address,
            "--http",
            self.http,
            *self.flags,
        ]
        self.log = (self.folder.parent / f"{self.folder.name}.log").open("ab")
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=self.log, text=True)
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        assert words[:1] == ["ready"], (words, Path(self.log.name).read_text())
        self.address, self.http = words[1], words[3]

    def kill(self) -> None:
        self.process.kill()
        self._ended()

    def restart(self) -> None:
        """Kills it and starts another in its place."""
        self.kill()
        self.start()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)  # some of its threads run on until then

    def cont(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.cont()
        self.process.terminate()
        self._ended()

    def _ended(self) -> None:
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()

    def run(self, *args: str) -> str:
        """A command of the program, which must succeed."""
        env = {**os.environ, "LEASEFS_NAMENODE": self.address}
        return subprocess.run([BINARY, *args], env=env, check=True, capture_output=True, text=True).stdout


Send = Callable[[], Awaitable[Any]]
Meddle = Callable[[str, Callable[[Send], Awaitable[Any]]], None]


def as_ever(send: Send) -> Awaitable[Any]:
    """A call that nobody meddles with."""
    return send()


async def lose_the_answer(send: Send) -> Any:
    """The namenode carries the call out, and nobody learns of that."""
    await send()
    raise leasefs.CanceledError("the answer was lost")


@pytest.fixture
def meddle(monkeypatch: pytest.MonkeyPatch) -> Meddle:
    """Has calls of a method, such as "Create", go through a function, which sends them or does not."""
    ask = Node.ask
    through: dict[str, Callable[[Send], Awaitable[Any]]] = {}

    async def asked(self: Node, method: str, *args: Any) -> Any:
        async def send() -> Any:
            return await ask(self, method, *args)

        return await through.get(method.removeprefix("Namenode/"), as_ever)(send)

    monkeypatch.setattr(Node, "ask", asked)
    return through.__setitem__


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namenode]:
    """A namenode that tests leave as it is, but for files of their own."""
    n = Namenode(tmp_path_factory.mktemp("shared") / "data")
    yield n
    n.end()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Namenode]:
    """A namenode of the test's own, to be killed."""
    n = Namenode(tmp_path / "data")
    yield n
    if n.process.poll() is None:
        n.end()
    shutil.rmtree(tmp_path / "data")


@pytest.fixture
def fs(shared: Namenode) -> Iterator[leasefs.FileSystem]:
    """A connection to it."""
    with leasefs.connect(shared.address, timeout=60) as fs:
        yield fs


@pytest.fixture
def root(fs: leasefs.FileSystem, request: pytest.FixtureRequest) -> str:
    """A directory of the test's own."""
    path = "/" + str(request.node.name).replace("/", "_")
    fs.mkdir(path)
    return path
