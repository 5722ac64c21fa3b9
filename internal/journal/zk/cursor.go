package zk

import (
	"errors"
	"fmt"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
)

// position is where a journal continues: what the next batch must follow.
type position struct {
	number  uint64 // of the next batch
	txid    uint64 // of the next record
	offset  uint64 // bytes in all batches before
	segment uint64 // of the last batch
	term    uint64 // of the last batch
	epoch   uint32 // of the last batch
	chain   uint32 // CRC of the last batch
}

// cursor walks over batches in order, checks that each continues the one
// before, and delivers records. It is a value: a copy is a cursor at the same
// place.
type cursor struct {
	position
	anchored bool   // something was read, so that chain and offset are known
	parts    uint16 // of the record that is being put together; 0: none is
	part     uint16 // that comes next
	partial  []byte // the parts so far
	// made is when the last batch that ends a record was made, by ZooKeeper's clock
	// (Unix milliseconds). 0: none was read.
	made int64
}

// take checks node, which was read from path and made at that time (see cursor), and
// calls fn for its records from txid from on. An error leaves the cursor where it was; errors of fn come back
// as they are, all others are *journal.DamageError.
func (c *cursor) take(path string, node []byte, made int64, from uint64, fn func(journal.Record) error) error {
	h, off, err := decodeNode(node)
	if err == nil {
		off, err = c.fits(h)
	}
	if err != nil {
		return damaged(path, off, c.txid, err.Error())
	}
	payload := node[headerSize:]
	next := *c
	next.parts, next.part, next.partial = 0, 0, nil
	if h.parts > 1 {
		if h.part > 0 {
			payload = append(c.partial[:len(c.partial):len(c.partial)], payload...)
		}
		if h.part < h.parts-1 {
			next.parts, next.part, next.partial = h.parts, h.part+1, payload
		}
	}
	if next.parts == 0 {
		err = group.DecodeRecords(payload, h.first, h.count, from, fn)
		var framing *group.FramingError
		if errors.As(err, &framing) {
			return damaged(path, headerSize+framing.Offset, framing.TxID, framing.Detail+"; the checksum fits, so this is a fault of the writer: keep the node and report it")
		}
		if err != nil {
			return err
		}
	}
	next.after(h, len(node))
	if h.count > 0 { // the first one of a journal has no record
		next.made = made
	}
	*c = next
	return nil
}

// after moves on behind a batch of that header and size.
func (c *cursor) after(h header, size int) {
	c.position = position{
		number: h.number + 1, txid: h.first + uint64(h.count), offset: h.offset + uint64(size), //nolint:gosec // a size
		segment: h.segment, term: h.term, epoch: h.epoch, chain: h.crc,
	}
	c.anchored = true
}

// fits says what of h does not continue what was read, and where it stands.
func (c *cursor) fits(h header) (off int64, err error) {
	continues := c.parts > 0 && h.parts == c.parts && h.part == c.part && h.epoch == c.epoch
	// The writer of a large record ended before its last part: it was never
	// acknowledged, and who came after begins with the same txid.
	abandons := c.parts > 0 && h.part == 0 && h.epoch > c.epoch
	switch {
	case h.number != c.number:
		return 16, fmt.Errorf("holds batch %d", h.number)
	case c.anchored && h.first != c.txid:
		return 24, fmt.Errorf("begins with record %d where %d is due", h.first, c.txid)
	case c.parts > 0 && !continues && !abandons:
		return 8, fmt.Errorf("is part %d of %d where part %d of %d is due", h.part, h.parts, c.part, c.parts)
	case c.parts == 0 && h.part != 0:
		return 8, fmt.Errorf("is part %d of %d, and the part before it is missing", h.part, h.parts)
	case !c.anchored:
		return 0, nil
	case h.epoch < c.epoch || h.term < c.term:
		return 56, fmt.Errorf("term %d (epoch %d) after term %d (epoch %d)", h.term, h.epoch, c.term, c.epoch)
	case h.chain != c.chain:
		return 60, errors.New("does not continue the batch before it: it belongs to another history")
	case h.offset != c.offset:
		return 48, fmt.Errorf("says that %d bytes are before it, and there are %d", h.offset, c.offset)
	case h.segment != c.segment && h.segment != h.number:
		return 40, fmt.Errorf("is of segment %d, the batch before it of %d", h.segment, c.segment)
	}
	return 0, nil
}
