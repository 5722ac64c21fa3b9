"""What the client hdfs-native (in Rust) does, against hdfs:// argv[1]."""

import sys

from hdfs_native import Client


def check(ok, what):
    if not ok:
        sys.exit(f"wrong: {what}")


c = Client(sys.argv[1])
c.mkdirs("/native/a", 0o755, True)
with c.create("/native/a/f") as w:
    w.write(b"x" * (9 << 20))
with c.append("/native/a/f") as w:
    w.write(b"yz")
check(c.get_file_info("/native/a/f").length == (9 << 20) + 2, "the length")
with c.read("/native/a/f") as r:
    check(r.read() == b"x" * (9 << 20) + b"yz", "what was written and appended")
    check(r.read_range((9 << 20) - 1, 3) == b"xyz", "a range")
try:
    c.create("/native/a/f")
    check(False, "a file was replaced without overwrite")
except FileExistsError:
    pass
c.rename("/native/a/f", "/native/g")
check([s.path for s in c.list_status("/native", True)] == ["/native/a", "/native/g"], "the listing after a rename")
check(c.get_content_summary("/native").length == (9 << 20) + 2, "the content summary")
check(c.delete("/native", True), "a removal")
