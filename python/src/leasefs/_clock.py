"""The clock that leases are held by.

It is none of the time of day, which people and NTP set. On Linux it also advances while
the machine is suspended, so a lease that ran out meanwhile is known to be over.
"""

from __future__ import annotations

import time

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
