package local

import (
	"errors"
	"fmt"

	"github.com/leasefs/leasefs/internal/journal/group"
)

// zeroSectors counts the sectors of the file that hold nothing but zeros, of
// those that buf at offset off covers. Of a sector that it covers in part only
// that part counts; in a batch as written neither end is zero.
func zeroSectors(buf []byte, off int64) uint32 {
	var n uint32
	for piece := range sectors(buf, off) {
		if isZero(piece) {
			n++
		}
	}
	return n
}

// sectors yields the parts of buf that lie in one sector each, and where each
// begins in buf.
func sectors(buf []byte, off int64) func(func([]byte, int) bool) {
	return func(yield func([]byte, int) bool) {
		for at := 0; at < len(buf); {
			size := min(sectorSize-int((off+int64(at))%sectorSize), len(buf)-at)
			if !yield(buf[at:at+size], at) {
				return
			}
			at += size
		}
	}
}

func isZero(b []byte) bool {
	for len(b) >= 8 {
		if le.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// tornTail says whether rest, which is all of the last segment from offset off
// on and does not begin with a good batch, is what an interrupted write leaves:
// the batch that was due, with bytes missing at its end or sectors never
// written. It returns nil if so, and else what speaks against it. Zeros at the
// end of rest are left out if there may be room ahead: missing bytes are zeros
// then, and the last byte of a batch and of its header are not.
//
// It rests on one batch at most being unsynced at any time, so that nothing
// ever follows a torn one.
func tornTail(rest []byte, off int64, due expectation) error {
	if len(rest) > maxBatch {
		return fmt.Errorf("no batch begins here, and %d bytes follow, more than the last batch can have", len(rest))
	}
	if h, ok := decodeBatchHeader(rest); ok {
		return tornPayload(rest, off, h, due)
	}
	return tornHeader(rest, off, due)
}

// tornPayload is tornTail behind a good header.
func tornPayload(rest []byte, off int64, h batchHeader, due expectation) error {
	if err := due.check(h); err != nil {
		return err
	}
	total := batchHeaderSize + int(h.length)
	if len(rest) < total {
		return nil
	}
	if len(rest) > total {
		return fmt.Errorf("checksum of the batch does not fit, and %d bytes follow it, so it is not a write cut short", len(rest)-total)
	}
	found := zeroSectors(rest, off)
	if found <= h.zeros {
		return errors.New("checksum of the batch does not fit although all of it was written: bits have changed")
	}
	if found == h.zeros+1 && oneBitOff(rest, off, h) {
		return errors.New("checksum of the batch fits if one bit, the only one of its sector, is set again: it was flipped")
	}
	return nil
}

// oneBitOff reports whether the checksum of the payload fits once a single bit
// is set in one of the sectors that are zero now. A flipped bit can empty a
// sector that had no other.
func oneBitOff(batch []byte, off int64, h batchHeader) bool {
	payload := batch[batchHeaderSize:]
	suspect := make(map[int]bool) // sectors of the file
	for piece, at := range sectors(batch, off) {
		if isZero(piece) {
			suspect[int((off+int64(at))/sectorSize)] = true
		}
	}
	// A CRC is linear: a flipped bit changes it by what that bit alone gives,
	// carried through the bytes behind it.
	syndrome := group.Checksum(payload) ^ h.payloadCRC
	var effect [8]uint32
	for bit := range effect {
		effect[bit] = group.Castagnoli[1<<bit]
	}
	for at := len(batch) - 1; at >= batchHeaderSize; at-- {
		hit := false
		for bit, e := range effect {
			hit = hit || e == syndrome
			effect[bit] = group.Castagnoli[e&0xff] ^ e>>8
		}
		if hit && suspect[int((off+int64(at))/sectorSize)] {
			return true
		}
	}
	return false
}

// tornHeader is tornTail where the header is not whole.
func tornHeader(rest []byte, off int64, due expectation) error {
	if zeroSectors(rest, off) == 0 && len(rest) >= batchHeaderSize {
		return errors.New("checksum of the batch header does not fit although all of it was written: bits have changed")
	}
	// What is known of the header before it is read must be there, where
	// anything is.
	var want [batchHeaderSize]byte
	h := batchHeader{first: due.first, chain: due.chain}
	h.encode(want[:])
	missing := len(rest) < batchHeaderSize
	for piece, at := range sectors(rest, off) {
		if at >= batchHeaderSize {
			break
		}
		if isZero(piece) {
			missing = true
			continue
		}
		for i := at; i < min(at+len(piece), batchHeaderSize); i++ {
			if knownField(i) && rest[i] != want[i] {
				return fmt.Errorf("batch header differs at byte %d from what is due here", i)
			}
		}
	}
	if !missing {
		return errors.New("checksum of the batch header does not fit although all of it was written: bits have changed")
	}
	if at := laterBatch(rest, due); at > 0 {
		return fmt.Errorf("batch header is damaged, and a whole batch follows at offset %d, so it is not a write cut short", off+int64(at))
	}
	return nil
}

// knownField: magic, first txid, chain and end mark.
func knownField(i int) bool {
	return i < 4 || (i >= 16 && i < 24) || (i >= 32 && i < 36) || i >= 44
}

// laterBatch returns where in rest a further batch begins that is whole and
// continues the journal, or 0.
func laterBatch(rest []byte, due expectation) int {
	for at := 1; at+batchHeaderSize < len(rest); at++ {
		if rest[at] != batchMagic&0xff {
			continue
		}
		h, ok := decodeBatchHeader(rest[at:])
		if !ok || h.first < due.first || h.term < due.term {
			continue
		}
		end := at + batchHeaderSize + int(h.length)
		if end <= len(rest) && group.Checksum(rest[at+batchHeaderSize:end]) == h.payloadCRC {
			return at
		}
	}
	return 0
}
