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

// Seal appends to buf, which holds the data of a block, its checksum table,
// and returns the object and its CRC32C. The data is read once. The object
// shares buf's array if its capacity suffices (StoredLength); then nothing is
// copied. It does not check MaxBlockSize.
func Seal(buf []byte) (object []byte, crc uint32) {
	var s Sealer
	s.table = make([]byte, 0, TableLength(int64(len(buf))))
	s.add(buf)
	return s.Seal(buf)
}

// Sealer computes the checksum table and the checksums of a block while its
// data comes in, so that sealing a full block reads nothing again. The zero
// value is ready. It is not safe for concurrent use.
type Sealer struct {
	table []byte // entries of the chunks that are complete
	whole uint32 // CRC of the complete chunks
	chunk uint32 // CRC of the chunk begun
	fill  int    // bytes of the chunk begun
	n     int64  // bytes in all
}

// Write adds data. It never fails.
func (s *Sealer) Write(data []byte) (int, error) {
	s.add(data)
	return len(data), nil
}

func (s *Sealer) add(data []byte) {
	s.n += int64(len(data))
	for len(data) > 0 {
		part := data[:min(len(data), ChunkSize-s.fill)]
		data = data[len(part):]
		s.chunk = UpdateCRC(s.chunk, part)
		if s.fill += len(part); s.fill == ChunkSize {
			s.table = binary.LittleEndian.AppendUint32(s.table, mask(s.chunk))
			s.whole = CombineCRC(s.whole, s.chunk, ChunkSize)
			s.chunk, s.fill = 0, 0
		}
	}
}

// Len is how many bytes of data were added.
func (s *Sealer) Len() int64 { return s.n }

// DataCRC is the CRC32C of the data added so far, without a table.
func (s *Sealer) DataCRC() uint32 { return CombineCRC(s.whole, s.chunk, int64(s.fill)) }

// AppendTable appends the checksum table of the data added so far to dst.
func (s *Sealer) AppendTable(dst []byte) []byte {
	dst = append(dst, s.table...)
	if s.fill > 0 {
		dst = binary.LittleEndian.AppendUint32(dst, mask(s.chunk))
	}
	return dst
}

// Seal is like the function Seal for a buf that holds exactly the data that
// was added, which is not read again. More data may be added afterwards (to a
// buf cut back to its data), and the block sealed again.
func (s *Sealer) Seal(buf []byte) (object []byte, crc uint32) {
	if int64(len(buf)) != s.n {
		panic("blockstore: Sealer.Seal: buf is not what was written")
	}
	object = s.AppendTable(slices.Grow(buf, int(TableLength(s.n))))
	return object, UpdateCRC(s.DataCRC(), object[len(buf):])
}

// Reset makes s ready for another block and keeps its memory.
func (s *Sealer) Reset() { *s = Sealer{table: s.table[:0]} }
