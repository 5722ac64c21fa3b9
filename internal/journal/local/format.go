package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/internal/vfs"
)

// Sizes in bytes. docs/design/journal.md has the tables.
const (
	// formatVersion is what is written. In version 1 a segment ends where its
	// file does; since version 2 zeros may follow.
	formatVersion = 2

	segHeaderSize   = 48
	batchHeaderSize = 48

	// batchTarget: a batch takes no further record that would bring it over
	// this. One record may be larger.
	batchTarget = 1 << 20
	// maxPayload bounds what a reader allocates for a batch.
	maxPayload = journal.MaxBody + group.RecordOverhead + 1
	maxBatch   = batchHeaderSize + maxPayload

	// sectorSize is the unit in which a disk writes; a torn write leaves some
	// of them as they were, which beyond the old end of a file is zeros.
	sectorSize = 512
)

// The first and the last byte of a batch header and the last one of a payload
// have at least four bits set: a sector that holds one of them is zero only if it was never written,
// not because a single bit flipped.
const (
	segMagic    = "LFSJRNL\x97"
	batchMagic  = 0x4c425aa7 // little endian: a7 5a 42 4c
	headerMark  = 0xa55ac36d
	payloadMark = 0xb7
)

var le = binary.LittleEndian

// segmentHeader is at the start of each segment.
type segmentHeader struct {
	version   uint32
	first     uint64 // txid of the first record that it holds or will hold
	prevFirst uint64 // the same of the segment before; 0: there was none
	prevEnd   uint64 // where that one ends; bytes of it beyond are superseded
	chain     uint32 // header CRC of the batch before the first one here
}

func (h segmentHeader) encode() []byte {
	b := make([]byte, segHeaderSize)
	copy(b, segMagic)
	le.PutUint32(b[8:], h.version)
	le.PutUint32(b[12:], h.chain)
	le.PutUint64(b[16:], h.first)
	le.PutUint64(b[24:], h.prevFirst)
	le.PutUint64(b[32:], h.prevEnd)
	le.PutUint32(b[40:], group.Checksum(b[:40]))
	le.PutUint32(b[44:], headerMark)
	return b
}

// errNewer: written by a later leasefs.
var errNewer = errors.New("newer format")

func decodeSegmentHeader(b []byte) (segmentHeader, error) {
	var h segmentHeader
	switch {
	case len(b) < segHeaderSize:
		return h, fmt.Errorf("segment header of %d bytes where %d are needed", len(b), segHeaderSize)
	case string(b[:8]) != segMagic:
		return h, errors.New("not a journal segment: its first 8 bytes are others")
	case le.Uint32(b[40:]) != group.Checksum(b[:40]) || le.Uint32(b[44:]) != headerMark:
		return h, errors.New("checksum of the segment header does not fit")
	}
	switch h.version = le.Uint32(b[8:]); {
	case h.version > formatVersion:
		return h, fmt.Errorf("%w: segment has format %d, this program knows up to %d", errNewer, h.version, formatVersion)
	case h.version == 0:
		return h, errors.New("segment header says format 0, which is none")
	}
	h.chain = le.Uint32(b[12:])
	h.first = le.Uint64(b[16:])
	h.prevFirst = le.Uint64(b[24:])
	h.prevEnd = le.Uint64(b[32:])
	return h, nil
}

// batchHeader is in front of each batch. A batch without records says that a
// term began.
type batchHeader struct {
	length     uint32 // of the payload
	count      uint32 // records
	zeros      uint32 // sectors of the file within this batch that hold only zeros, as written
	first      uint64 // txid of the first record, or of the next one if there is none
	term       uint64
	chain      uint32 // header CRC of the batch before
	payloadCRC uint32
	crc        uint32 // of the fields above, as encoded
}

const batchCRCAt = 40

// encode writes h to b and sets h.crc.
func (h *batchHeader) encode(b []byte) {
	le.PutUint32(b[0:], batchMagic)
	le.PutUint32(b[4:], h.length)
	le.PutUint32(b[8:], h.count)
	le.PutUint32(b[12:], h.zeros)
	le.PutUint64(b[16:], h.first)
	le.PutUint64(b[24:], h.term)
	le.PutUint32(b[32:], h.chain)
	le.PutUint32(b[36:], h.payloadCRC)
	h.crc = group.Checksum(b[:batchCRCAt])
	le.PutUint32(b[batchCRCAt:], h.crc)
	le.PutUint32(b[44:], headerMark)
}

// decodeBatchHeader reads a header and reports whether it is one: whole, and
// its checksum fits. What its fields say is checked by expectation.check.
func decodeBatchHeader(b []byte) (h batchHeader, ok bool) {
	if len(b) < batchHeaderSize || le.Uint32(b) != batchMagic ||
		le.Uint32(b[44:]) != headerMark || le.Uint32(b[batchCRCAt:]) != group.Checksum(b[:batchCRCAt]) {
		return h, false
	}
	return batchHeader{
		length:     le.Uint32(b[4:]),
		count:      le.Uint32(b[8:]),
		zeros:      le.Uint32(b[12:]),
		first:      le.Uint64(b[16:]),
		term:       le.Uint64(b[24:]),
		chain:      le.Uint32(b[32:]),
		payloadCRC: le.Uint32(b[36:]),
		crc:        le.Uint32(b[batchCRCAt:]),
	}, true
}

// seal completes a batch in place: buf is room for the header, then the records.
// It returns the bytes to write at offset off of a segment.
func seal(buf []byte, off int64, h batchHeader) ([]byte, batchHeader) {
	buf = append(buf, payloadMark)
	payload := buf[batchHeaderSize:]
	h.length = uint32(len(payload)) //nolint:gosec // at most maxPayload
	h.payloadCRC = group.Checksum(payload)
	h.zeros = 0
	h.encode(buf) // so that no part of it is zero
	h.zeros = zeroSectors(buf, off)
	h.encode(buf)
	return buf, h
}

// expectation is what the next batch of a journal must continue.
type expectation struct {
	first uint64 // txid
	term  uint64 // at least
	chain uint32
}

// check says what does not fit in a header whose own checksum does.
func (x expectation) check(h batchHeader) error {
	switch {
	case h.first != x.first:
		return fmt.Errorf("batch begins with record %d where %d is due", h.first, x.first)
	case h.term < x.term:
		return fmt.Errorf("term goes back from %d to %d", x.term, h.term)
	case h.chain != x.chain:
		return errors.New("batch does not continue the one before it (it belongs to another history)")
	case h.length == 0 || h.length > maxPayload:
		return fmt.Errorf("payload of %d bytes is not between 1 and %d", h.length, maxPayload)
	case h.count >= h.length:
		return fmt.Errorf("%d records cannot be in %d bytes", h.count, h.length)
	case h.first+uint64(h.count) < h.first:
		return errors.New("record numbers overflow")
	}
	return nil
}

// after returns what must follow h.
func (x expectation) after(h batchHeader) expectation {
	return expectation{first: h.first + uint64(h.count), term: h.term, chain: h.crc}
}

// decodeRecords calls fn for each record of a payload whose checksum fits; the
// bodies are parts of it.
func decodeRecords(h batchHeader, payload []byte, from uint64, fn func(journal.Record) error) error {
	n := len(payload) - 1
	if n < 0 || payload[n] != payloadMark {
		return &group.FramingError{TxID: h.first, Detail: "no end mark"}
	}
	return group.DecodeRecords(payload[:n:n], h.first, h.count, from, fn)
}

const (
	// SegmentSuffix ends the names of segments.
	SegmentSuffix = ".log"
	tmpSuffix     = vfs.TempSuffix
)

func segmentName(first uint64) string { return fmt.Sprintf("%020d%s", first, SegmentSuffix) }

// parseSegmentName reports whether name is a segment's, and of which first txid.
func parseSegmentName(name string) (first uint64, ok bool) {
	num, found := strings.CutSuffix(name, SegmentSuffix)
	if !found || len(num) != 20 {
		return 0, false
	}
	first, err := strconv.ParseUint(num, 10, 64)
	return first, err == nil && first > 0 && segmentName(first) == name
}
