package blockstore

import (
	"encoding/binary"
	"slices"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Sizes in bytes. They are of the format: changing ChunkSize changes every block.
const (
	// DefaultBlockSize is the data of a full block unless configured otherwise.
	DefaultBlockSize = 8 << 20
	// MaxBlockSize is the most data that a block may have.
	MaxBlockSize = 64 << 20
	// ChunkSize is the data that one entry of a block's checksum table covers.
	ChunkSize = 64 << 10
	// ChecksumSize is the size of one entry: a masked CRC32C, little endian.
	ChecksumSize = 4
	// MaxObjectSize is the stored length of a block with MaxBlockSize of data.
	MaxObjectSize = MaxBlockSize + MaxBlockSize/ChunkSize*ChecksumSize
)

// TableLength is the length in bytes of the checksum table of so many bytes of
// data, which must not be negative.
func TableLength(data int64) int64 {
	return (data + ChunkSize - 1) / ChunkSize * ChecksumSize
}

// StoredLength is the length in bytes of the object that holds so many bytes of
// data: the data and its table. data must not be negative.
func StoredLength(data int64) int64 { return data + TableLength(data) }

// DataLength is the inverse of StoredLength. A length that no block has, or
// beyond MaxObjectSize, is InvalidArgument.
func DataLength(stored int64) (int64, error) {
	const full = ChunkSize + ChecksumSize
	if stored < 0 || stored > MaxObjectSize {
		return 0, fserror.New(fserror.InvalidArgument, "", "", "a block of %d stored bytes: must be 0 to %d", stored, int64(MaxObjectSize))
	}
	data := stored - (stored+full-1)/full*ChecksumSize
	if data < 0 || StoredLength(data) != stored {
		return 0, fserror.New(fserror.InvalidArgument, "", "", "no block has %d stored bytes (data and 4 bytes for each 64 KiB begun)", stored)
	}
	return data, nil
}

// CheckLength refuses stored lengths that no object may have in a store that takes
// at most so many bytes.
func CheckLength(key Key, length, most int64) error {
	switch {
	case length < 1:
		return fserror.New(fserror.InvalidArgument, "put", "", "block %s: an object of %d bytes", key, length)
	case length > most:
		return fserror.New(fserror.TooLarge, "put", "", "block %s: an object of %d bytes, at most %d are taken", key, length, most)
	}
	return nil
}

// Seal appends to buf, which holds the data of a block, its checksum table,
// and returns the object and its CRC32C. The data is read once. The object
// shares buf's array if its capacity suffices (StoredLength); then nothing is
// copied. It does not check MaxBlockSize.
func Seal(buf []byte) (object []byte, crc uint32) {
	whole, n := uint32(0), len(buf)
	object = slices.Grow(buf, int(TableLength(int64(n))))
	for part := range slices.Chunk(buf, ChunkSize) {
		chunk := CRC(part)
		object = binary.LittleEndian.AppendUint32(object, mask(chunk))
		whole = CombineCRC(whole, chunk, int64(len(part)))
	}
	return object, UpdateCRC(whole, object[n:])
}
