"""Appends numbered lines, prints the number of each that is durable, and at the end of its input checks the file."""

import sys
import threading

import leasefs

namenodes, path = sys.argv[1:]
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
lines = []
with leasefs.connect(namenodes, timeout=120) as fs:
    with fs.create(path) as w:
        token = w.token
        while not over.is_set():
            lines.append(b"line %d\n" % len(lines))
            w.write(lines[-1])
            w.flush()
            print(len(lines), flush=True)
            over.wait(0.005)
        # Blocks, too.
        lines.append(bytes(range(256)) * 4096 * 9)
        w.write(lines[-1])
    if fs.read_file(path) != b"".join(lines):
        sys.exit("the file has other bytes than were written")
    if fs.stat(path).open is not None or token == 0:
        sys.exit("the file was not closed")
