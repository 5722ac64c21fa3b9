"""The asynchronous face, and what the README promises."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Meddle, Namenode, Send, as_ever, eventually

import leasefs
import leasefs.aio
from leasefs import _clock, _format


def test_everything(shared: Namenode) -> None:
    async def main() -> None:
        async with await leasefs.aio.connect(shared.address) as fs:
            await fs.mkdir("/aio/d", parents=True)
            async with await fs.create("/aio/a") as w:
                assert await w.write(b"one ") == 4
                await w.flush()
                assert await fs.read_file("/aio/a") == b"one "
                await w.write(memoryview(b"two"))
                assert w.tell() == 7
                assert w.durable == 4
            async with await fs.open("/aio/a") as r:
                assert (await r.read(4), await r.read(), r.tell()) == (b"one ", b"two", 7)
                r.seek(-3, 2)
                assert await r.read(1) == b"t"
            await asyncio.gather(*(fs.write_file(f"/aio/d/{i:03}", b"x" * i) for i in range(50)))
            assert [i.size async for i in fs.listdir("/aio/d", page=7)] == list(range(50))
            with pytest.raises(leasefs.ExistsError):
                await fs.create("/aio/a")
            async with await fs.lock("/aio/lock") as lock:
                lost = asyncio.create_task(lock.wait_lost())
                await fs.recover("/aio/lock", force=True)
                assert isinstance(await lost, leasefs.LeaseLostError)
                with pytest.raises(leasefs.LeaseLostError):
                    await lock.release()
            async with await fs.grant(30.0) as lease:
                await fs.write_file("/aio/leased", b"", lease=lease.id)
            assert not await fs.exists("/aio/leased")
            with pytest.raises(ZeroDivisionError):
                async with await fs.append("/aio/a") as w:
                    await w.write(b"half")
                    raise ZeroDivisionError
            assert await fs.read_file("/aio/a") == b"one two"
            assert (await fs.summary("/aio")).open_files == 0
            await fs.rmtree("/aio")

    asyncio.run(main())


def test_a_blocked_event_loop_loses_nothing(own: Namenode) -> None:
    async def main() -> None:
        async with await leasefs.aio.connect(own.address, ttl=1.0) as fs, await fs.create("/a") as w:
            time.sleep(3)  # what a program should not do
            await w.write(b"mine")
            await w.flush()
            assert w.lost is None

    asyncio.run(main())


def test_loss_is_told_in_time(own: Namenode, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the soft limit on others may take a lock, also if nobody can tell its holder. So it is with a lease."""

    async def main() -> None:
        async with (
            await leasefs.aio.connect(own.address) as fs,
            await fs.lock("/lock") as lock,
            await fs.grant(60.0) as lease,
        ):
            told = [asyncio.create_task(lock.wait_lost()), asyncio.create_task(lease.wait_lost())]
            now, ahead = _clock.now, max(fs._core.session.soft, lease.ttl)
            own.stop()  # no renewal comes through
            try:
                monkeypatch.setattr(_clock, "now", lambda: now() + ahead)
                async with asyncio.timeout(60):
                    assert [type(e) for e in await asyncio.gather(*told)] == [leasefs.LeaseLostError] * 2
                for check in (lock.check, lease.check):
                    with pytest.raises(leasefs.LeaseLostError):
                        check()
            finally:
                monkeypatch.undo()
                own.cont()

    asyncio.run(main())


def test_cancellation(own: Namenode) -> None:
    async def main() -> None:
        async with await leasefs.aio.connect(own.address, ttl=1.0) as fs:
            w = await fs.create("/a")
            await w.write(b"x")
            own.stop()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await w.flush()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await fs.create("/b")
            own.cont()
            await w.close()  # the flush has gone on
            assert await fs.read_file("/a") == b"x"
            # Whether it was made or not, nobody keeps it.
            async with await leasefs.aio.connect(own.address) as other:
                await (await other.append("/b", create=True, wait=120)).close()

    asyncio.run(main())


@pytest.mark.parametrize("then", ["write", "flush", "close", "the connection's close"])
def test_a_failed_write_keeps_its_bytes(own: Namenode, meddle: Meddle, then: str) -> None:
    """Who continues after the error of a block loses none of them."""

    async def refuse(_: object) -> None:
        raise leasefs.NoSpaceError("there is no room")

    async def main() -> None:
        async with await leasefs.aio.connect(own.address) as fs:
            block, more = bytes(fs._core.session.welcome.block_size), b""
            w = await fs.create("/a")
            meddle("AllocateBlock", refuse)
            await w.write(block)
            eventually("the block is refused", lambda: w._core._block_error is not None)
            meddle("AllocateBlock", as_ever)
            with pytest.raises(leasefs.NoSpaceError):
                await w.write(b"the rest")
            assert w.tell() == len(block) + 8
            if then == "write":
                more = b" and more"
                await w.write(more)
            if then == "flush":
                await w.flush()
                assert w.durable == len(block) + 8
            if then != "the connection's close":
                await w.close()
        async with await leasefs.aio.connect(own.address) as fs:
            assert await fs.read_file("/a") == block + b"the rest" + more

    asyncio.run(main())


def test_no_error_of_a_block_is_unseen(own: Namenode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is, who waits for the block learns of it, and can try again."""
    seal, rounds = _format.seal, [MemoryError(), None]

    def fail(data: bytearray) -> int:
        if (e := rounds.pop(0)) is not None:
            raise e
        return seal(data)

    async def main() -> None:
        async with await leasefs.aio.connect(own.address) as fs:
            w = await fs.create("/a")
            block = bytes(fs._core.session.welcome.block_size)
            monkeypatch.setattr(_format, "seal", fail)
            await w.write(block)
            async with asyncio.timeout(60):
                eventually("it has failed", lambda: w._core._block_error is not None)
                with pytest.raises(leasefs.LeasefsError, match="MemoryError"):
                    await w.write(b"x")
                await w.flush()
            assert await fs.read_file("/a") == block + b"x"
            await w.close()

    asyncio.run(main())


def test_a_cancelled_opening_is_given_back(own: Namenode, meddle: Meddle) -> None:
    carried_out = threading.Event()

    async def withhold(send: Send) -> Any:
        await send()
        carried_out.set()
        await asyncio.Event().wait()

    async def main() -> None:
        with leasefs.connect(own.address) as other:
            async with await leasefs.aio.connect(own.address) as fs:
                meddle("Create", withhold)
                task = asyncio.create_task(fs.create("/a"))
                await asyncio.to_thread(carried_out.wait)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                meddle("Create", as_ever)
                await asyncio.to_thread(eventually, "the file is closed", lambda: other.stat("/a").open is None)

    asyncio.run(main())


def test_the_readme(shared: Namenode, tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 3
    for code in examples:
        exec(compile(code.replace("127.0.0.1:8020", shared.address), "README.md", "exec"), {"__name__": "readme"})
    with leasefs.connect(shared.address) as fs:
        assert fs.read_file("/logs/a") == b"a line\nanother line\n"
