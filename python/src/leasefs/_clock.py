"""The clock that leases are held by.

It is none of the time of day, which people and NTP set. On Linux it also advances while
the machine is suspended, so a lease that ran out meanwhile is known to be over.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds since some fixed moment."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
else:

    def now() -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()


def sure(granted: float) -> float:
    """For how many seconds a holder relies on what was granted for so many: clocks differ a little."""
    return granted - min(granted / 20, 1.0)


async def run_out(remaining: Callable[[], float], told: asyncio.Event) -> None:
    """Returns once no time remains, or it is told that none does.

    It looks often, rather than sleep until then: a timer stands still while the machine is suspended.
    """
    while not told.is_set() and (left := remaining()) > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(max(left, 0.01), 1.0)):
                await told.wait()
