"""Blocks byte by byte: docs/design/blocks.md."""

from __future__ import annotations

import struct
from functools import cache

import google_crc32c

CHUNK = 64 << 10  # bytes of data that one entry of a block's checksum table covers
_ENTRY = 4  # bytes of one entry
MAX_BLOCK = 64 << 20  # the most data that a block may have
_MASK_DELTA = 0xA282EAD8
_POLY = 0x82F63B78

Buffer = bytes | bytearray | memoryview


class DamageError(Exception):
    """Bytes that do not match their checksums, from an offset in the block on."""

    def __init__(self, offset: int, detail: str) -> None:
        super().__init__(detail)
        self.offset = offset


def crc(data: Buffer) -> int:
    """The CRC32C of data."""
    return int(google_crc32c.value(_bytes(data)))


def _extend(value: int, data: Buffer) -> int:
    return int(google_crc32c.extend(value, _bytes(data)))


def _bytes(data: Buffer) -> bytes:
    return data if isinstance(data, bytes) else bytes(data)


def table_length(data: int) -> int:
    """The length of the checksum table of so many bytes of data."""
    return (data + CHUNK - 1) // CHUNK * _ENTRY


def data_length(stored: int) -> int:
    """How many of an object's bytes are data. ValueError: no block has that length."""
    data = stored - (stored + CHUNK + _ENTRY - 1) // (CHUNK + _ENTRY) * _ENTRY
    if data <= 0 or data > MAX_BLOCK or data + table_length(data) != stored:
        raise ValueError(f"no block has {stored} stored bytes")
    return data


def align(data: int, start: int, end: int) -> tuple[int, int]:
    """A range of a block's data, widened to whole chunks."""
    return start // CHUNK * CHUNK, min((end + CHUNK - 1) // CHUNK * CHUNK, data)


def seal(data: bytearray) -> int:
    """Appends the checksum table of a block's data, and returns the checksum of the whole."""
    with memoryview(data) as view:
        sums = [crc(view[i : i + CHUNK]) for i in range(0, len(view), CHUNK)]
    whole = 0
    for i, s in enumerate(sums):
        whole = combine(whole, s, min(CHUNK, len(data) - i * CHUNK))
    table = b"".join(struct.pack("<I", _mask(s)) for s in sums)
    whole = _extend(whole, table)
    data += table  # at the end: if there is no memory for it all, nothing is changed
    return whole


def check_table(table: bytes, data: int, whole: int) -> list[int]:
    """The checksums of a block's chunks, from its table, which is held against that of the whole."""
    if len(table) != table_length(data):
        raise DamageError(data, f"a checksum table of {len(table)} bytes for {data} bytes of data")
    sums = [_unmask(e) for (e,) in struct.iter_unpack("<I", table)]
    got = 0
    for i, s in enumerate(sums):
        got = combine(got, s, min(CHUNK, data - i * CHUNK))
    got = _extend(got, table)
    if got != whole:
        raise DamageError(
            data,
            f"its checksum table belongs to an object of checksum {got:08x}, the file's block list has {whole:08x}",
        )
    return sums


def check_range(sums: list[int], offset: int, data: Buffer) -> None:
    """Holds whole chunks of a block, from an offset on, against their checksums."""
    view = memoryview(data)
    for i in range(0, len(view), CHUNK):
        want = sums[(offset + i) // CHUNK]
        got = crc(view[i : i + CHUNK])
        if got != want:
            raise DamageError(offset + i, f"the chunk's checksum is {got:08x}, its table has {want:08x}")


def _mask(value: int) -> int:
    return ((value << 17 | value >> 15) + _MASK_DELTA) & 0xFFFFFFFF


def _unmask(entry: int) -> int:
    value = (entry - _MASK_DELTA) & 0xFFFFFFFF
    return (value >> 17 | value << 15) & 0xFFFFFFFF


# A CRC is a polynomial over GF(2), bit-reversed: bit 31 is x^0. Appending n bytes multiplies
# it by x^(8n); the method is Mark Adler's in zlib's crc32_combine.


def _multiply(a: int, b: int) -> int:
    p = 0
    while a:
        if a & 0x80000000:
            p ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLY if b & 1 else 0)
    return p


@cache
def _chunk_shift() -> tuple[list[int], ...]:
    """For each byte of a CRC, what it becomes over one whole chunk."""
    factor = _append_factor(CHUNK)
    return tuple([_multiply(b << 8 * i, factor) for b in range(256)] for i in range(4))


def _append_factor(n: int) -> int:
    factor, power = 1 << 31, 1 << 23  # x^0, and x^8: one byte
    while n:
        if n & 1:
            factor = _multiply(factor, power)
        power = _multiply(power, power)
        n >>= 1
    return factor


def combine(first: int, second: int, length: int) -> int:
    """The CRC of A followed by B, from those of A and of B and the length of B."""
    if first == 0:
        return second
    if length == CHUNK:
        t = _chunk_shift()
        return t[0][first & 255] ^ t[1][first >> 8 & 255] ^ t[2][first >> 16 & 255] ^ t[3][first >> 24] ^ second
    return _multiply(first, _append_factor(length)) ^ second
