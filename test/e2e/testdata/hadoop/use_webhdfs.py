"""What Python's clients of WebHDFS do, against the gateway at port argv[1]."""

import sys

import fsspec
import pyarrow
import pyarrow.fs
import pyarrow.parquet
from hdfs import InsecureClient
from hdfs.util import HdfsError

port = int(sys.argv[1])


def check(ok, what):
    if not ok:
        sys.exit(f"wrong: {what}")


c = InsecureClient(f"http://127.0.0.1:{port}", user="root")
c.write("/py/a", data=b"x" * 100_000, overwrite=True)
c.write("/py/a", data=b"yz", append=True)
with c.read("/py/a") as r:
    check(r.read() == b"x" * 100_000 + b"yz", "what was written and appended")
c.rename("/py/a", "/py/b")
check(c.list("/py") == ["b"], "the listing after a rename")
check(c.checksum("/py/b")["algorithm"] == "MD5-of-0MD5-of-512CRC32C", "the checksum")
check(c.content("/py")["length"] == 100_002, "the content summary")
try:
    c.write("/py/b", data=b"")
    check(False, "a file was replaced without overwrite")
except HdfsError as e:
    check(e.exception == "FileAlreadyExistsException", e)

fs = fsspec.filesystem("webhdfs", host="127.0.0.1", port=port, user="root")
with fs.open("/py/f", "wb") as f:  # in parts of 5 MiB
    f.write(b"q" * (12 << 20))
    f.write(b"end")
check(fs.info("/py/f")["size"] == (12 << 20) + 3, "the length of a file in parts")
check(fs.cat_file("/py/f", start=(12 << 20) - 1, end=(12 << 20) + 3) == b"qend", "a range")
fs.mv("/py/f", "/py/g")
check(fs.exists("/py/g") and not fs.exists("/py/f"), "a move")

arrow = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fsspec.filesystem("webhdfs", host="127.0.0.1", port=port, user="root")))
table = pyarrow.table({"day": ["a", "b"] * 50_000, "n": list(range(100_000))})
pyarrow.parquet.write_to_dataset(table, "/py/table", partition_cols=["day"], filesystem=arrow)
back = pyarrow.parquet.read_table("/py/table", filesystem=arrow).sort_by("n")
check(back["n"].equals(table["n"]), "a column of a table")
check(back["day"].cast("string").equals(table["day"]), "what a table is partitioned by")
some = pyarrow.parquet.read_table("/py/table", filesystem=arrow, columns=["n"], filters=[("day", "=", "b"), ("n", "<", 10)])
check(sorted(some["n"].to_pylist()) == [1, 3, 5, 7, 9], "some rows of a table")
infos = arrow.get_file_info(pyarrow.fs.FileSelector("/py/table"))
check(sorted(i.base_name for i in infos) == ["day=a", "day=b"] and not any(i.is_file for i in infos), infos)
arrow.move("/py/table", "/py/moved")
check(arrow.get_file_info("/py/table").type == pyarrow.fs.FileType.NotFound, "a table that was moved")

fs.rm("/py", recursive=True)
check(not fs.exists("/py"), "a removed tree")
