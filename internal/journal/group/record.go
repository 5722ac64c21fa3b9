package group

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/leasefs/leasefs/internal/journal"
)

// Castagnoli is the table of the checksums of both journals (CRC32C).
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC32C of b.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, Castagnoli) }

// RecordOverhead is the most that framing adds to a body.
const RecordOverhead = 1 + 2*binary.MaxVarintLen64

// AppendRecord appends the framing and the body of rec. Its txid is implied.
func AppendRecord(b []byte, rec *journal.Record, prevTime int64) []byte {
	b = append(b, rec.Type)
	b = binary.AppendVarint(b, rec.Time-prevTime)
	b = binary.AppendUvarint(b, uint64(len(rec.Body)))
	return append(b, rec.Body...)
}

// DecodeRecords calls fn for each of count records from txid from on, the first
// of which is first; bodies are parts of b. What is wrong with the framing is a
// *FramingError.
func DecodeRecords(b []byte, first uint64, count uint32, from uint64, fn func(journal.Record) error) error {
	rec := journal.Record{TxID: first}
	at := 0
	bad := func(detail string) error { return &FramingError{rec.TxID, int64(at), detail} }
	for range count {
		rest := b[at:]
		if len(rest) == 0 {
			return bad("fewer records than the header says")
		}
		rec.Type = rest[0]
		dt, i := binary.Varint(rest[1:])
		if i <= 0 {
			return bad("time is not a number")
		}
		size, k := binary.Uvarint(rest[1+i:])
		start := 1 + i + k
		if k <= 0 || size > uint64(len(rest)-start) {
			return bad("length does not fit in the batch")
		}
		end := start + int(size) //nolint:gosec // at most len(rest)
		rec.Time += dt
		rec.Body = rest[start:end:end]
		at += end
		if rec.TxID >= from {
			if err := fn(rec); err != nil {
				return err
			}
		}
		rec.TxID++
	}
	if at < len(b) {
		return bad("more bytes than the records that the header says")
	}
	return nil
}

// FramingError says what does not fit in records whose checksum does.
type FramingError struct {
	TxID   uint64
	Offset int64 // from the first record's
	Detail string
}

func (e *FramingError) Error() string {
	return fmt.Sprintf("framing of record %d is unknown: %s", e.TxID, e.Detail)
}
