package blockstore

import (
	"encoding/binary"
	"fmt"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Verify checks a whole object against its table and against whole, the CRC32C
// that the file's block list has of it. Damaged names the block and where in it
// (offset in bytes, of a chunk) the first wrong bytes are. The data is read once.
func Verify(block Key, object []byte, whole uint32) error {
	dataLen, err := DataLength(int64(len(object)))
	if err != nil {
		return damaged(block, int64(len(object)), "truncated or of another length: %d stored bytes", len(object))
	}
	data, table := object[:dataLen], object[dataLen:]
	var crc uint32
	for off := 0; off < len(data); off += ChunkSize {
		chunk := data[off:min(off+ChunkSize, len(data))]
		got := CRC(chunk)
		if want := tableEntry(table, off/ChunkSize); got != want {
			return wrongChunk(block, int64(off), got, want)
		}
		crc = CombineCRC(crc, got, int64(len(chunk)))
	}
	if got := UpdateCRC(crc, table); got != whole {
		return damaged(block, 0, "the object's checksum is %08x, the file's block list has %08x", got, whole)
	}
	return nil
}

// Table is the checksum table of one block, as it is stored. It is read-only
// and so safe for concurrent use.
type Table []byte

// ParseTable checks that table is the checksum table of the block with dataLen
// bytes of data whose whole object has the CRC32C whole. It needs none of the
// data: the checksum of the whole follows from those of the chunks. So ranges
// verified against the table are verified against the file's block list.
// Damaged otherwise.
func ParseTable(block Key, table []byte, dataLen int64, whole uint32) (Table, error) {
	if dataLen < 0 || dataLen > MaxBlockSize || int64(len(table)) != TableLength(dataLen) {
		return nil, damaged(block, dataLen, "a checksum table of %d bytes for %d bytes of data", len(table), dataLen)
	}
	var crc uint32
	for off := int64(0); off < dataLen; off += ChunkSize {
		crc = CombineCRC(crc, tableEntry(table, int(off/ChunkSize)), min(ChunkSize, dataLen-off))
	}
	if got := UpdateCRC(crc, table); got != whole {
		return nil, damaged(block, dataLen, "its checksum table belongs to an object of checksum %08x, the file's block list has %08x", got, whole)
	}
	return Table(table), nil
}

// VerifyRange checks data, the bytes from off on, of the block with dataLen
// bytes of data and that table. off must be a multiple of ChunkSize, and data
// must end at one or at the end of the block's data: InvalidArgument otherwise.
// Damaged names block and offset (bytes in the block) of the first bad chunk.
func VerifyRange(block Key, table []byte, dataLen, off int64, data []byte) error {
	end := off + int64(len(data))
	if off < 0 || off%ChunkSize != 0 || end < off || end > dataLen || (end%ChunkSize != 0 && end != dataLen) {
		return fserror.New(fserror.InvalidArgument, "verify", "block "+block.String(),
			"bytes %d to %d are no whole chunks of %d bytes of data", off, end, dataLen)
	}
	if dataLen > MaxBlockSize || int64(len(table)) != TableLength(dataLen) {
		return damaged(block, dataLen, "a checksum table of %d bytes for %d bytes of data", len(table), dataLen)
	}
	for len(data) > 0 {
		chunk := data[:min(ChunkSize, len(data))]
		got := CRC(chunk)
		if want := tableEntry(table, int(off/ChunkSize)); got != want {
			return wrongChunk(block, off, got, want)
		}
		data = data[len(chunk):]
		off += int64(len(chunk))
	}
	return nil
}

// AlignRange widens a range of data to whole chunks: the range that must be
// read so that VerifyRange can check it. length beyond the end is cut off.
func AlignRange(dataLen, off, length int64) (alignedOff, alignedLength int64) {
	off = min(max(off, 0), dataLen)
	end := off + min(max(length, 0), dataLen-off)
	start := off / ChunkSize * ChunkSize
	end = min((end+ChunkSize-1)/ChunkSize*ChunkSize, dataLen)
	return start, end - start
}

// tableEntry is the CRC32C that the table has of chunk i.
func tableEntry(table []byte, i int) uint32 {
	return unmask(binary.LittleEndian.Uint32(table[i*ChecksumSize:]))
}

func wrongChunk(block Key, off int64, got, want uint32) error {
	return damaged(block, off, "the chunk's checksum is %08x, its table has %08x", got, want)
}

// Damage is the cause within an error of kind Damaged, for errors.As: which
// block, and the offset in bytes, in the block, where its first bad chunk
// begins (or, if only its table is bad, where its data end).
type Damage struct {
	Block  Key
	Offset int64
	Detail string // what does not match what
}

// Error is the detail; the *fserror.Error around it names block and offset.
func (d *Damage) Error() string { return d.Detail }

// damaged is an error that names block and offset; the caller adds the file.
func damaged(block Key, off int64, format string, args ...any) error {
	return &fserror.Error{Op: "verify", Kind: fserror.Damaged,
		Message: fmt.Sprintf("block %s is damaged at offset %d", block, off),
		Err:     &Damage{block, off, fmt.Sprintf(format, args...)}}
}
