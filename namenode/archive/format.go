package archive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/namenode/images"
)

const (
	segmentPrefix = "archive-"
	// BasePrefix is what the names of bases begin with.
	BasePrefix = "base-"

	magic      = "leasefs archive\n"
	version    = 1
	headerSize = 76
	headerCRC  = 72 // where its checksum is

	// target is how many bytes of records an object takes, but for the last record.
	target = 8 << 20
	// most is how many bytes an object can have.
	most = headerSize + target + journal.MaxBody + group.RecordOverhead
)

var le = binary.LittleEndian

// Segment is an object of records.
type Segment struct {
	First, Last uint64 // txids
	Term        uint64 // of the reign that put it
	Time        int64  // of the last record, Unix milliseconds
}

// Name is the name of the object.
func (s Segment) Name() string {
	return fmt.Sprintf("%s%020d-%020d-%016x-%020d", segmentPrefix, s.Last, s.First, s.Term, s.Time)
}

// parseSegment reads a name.
func parseSegment(name string) (s Segment, ok bool) {
	parts := strings.Split(strings.TrimPrefix(name, segmentPrefix), "-")
	if len(parts) != 4 {
		return s, false
	}
	var errs [4]error
	s.Last, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	s.First, errs[1] = strconv.ParseUint(parts[1], 10, 64)
	s.Term, errs[2] = strconv.ParseUint(parts[2], 16, 64)
	s.Time, errs[3] = strconv.ParseInt(parts[3], 10, 64)
	return s, errors.Join(errs[:]...) == nil && s.First > 0 && s.First <= s.Last && s.Name() == name
}

// batch are records that become an object.
type batch struct {
	buf   []byte
	first uint64
	count uint32
	time  int64 // of the last record
}

func newBatch() *batch { return &batch{buf: make([]byte, headerSize, 64<<10)} }

func (b *batch) add(r *journal.Record) {
	if b.count == 0 {
		b.first = r.TxID
	}
	b.buf = group.AppendRecord(b.buf, r, b.time)
	b.time = r.Time
	b.count++
}

// seal returns the object.
func (b *batch) seal(id [16]byte, term uint64) (s Segment, object []byte) {
	s = Segment{First: b.first, Last: b.first + uint64(b.count) - 1, Term: term, Time: b.time}
	records := b.buf[headerSize:]
	copy(b.buf, magic)
	le.PutUint32(b.buf[16:], version)
	le.PutUint32(b.buf[20:], blockstore.CRC(records))
	copy(b.buf[24:], id[:])
	le.PutUint64(b.buf[40:], term)
	le.PutUint64(b.buf[48:], b.first)
	le.PutUint32(b.buf[56:], b.count)
	le.PutUint32(b.buf[60:], uint32(len(records))) //nolint:gosec // at most most
	le.PutUint64(b.buf[64:], uint64(b.time))       //nolint:gosec // as it is
	le.PutUint32(b.buf[headerCRC:], blockstore.CRC(b.buf[:headerCRC]))
	return s, b.buf
}

// decode calls fn for each record of an object with a txid of at least from. An error that is
// not fn's is Damaged, and names the object.
func decode(id [16]byte, s Segment, object []byte, from uint64, fn func(journal.Record) error) error {
	bad := func(format string, args ...any) error {
		return fserror.New(fserror.Damaged, "", "", "the object %s of the archive is damaged: "+format, append([]any{s.Name()}, args...)...).Because(fserror.ReasonArchive)
	}
	if len(object) < headerSize {
		return bad("it has %d bytes, which is less than its header", len(object))
	}
	head, records := object[:headerSize], object[headerSize:]
	switch {
	case string(head[:16]) != magic:
		return bad("it does not begin as one")
	case le.Uint32(head[headerCRC:]) != blockstore.CRC(head[:headerCRC]):
		return bad("the checksum of its header does not fit")
	case le.Uint32(head[16:]) != version:
		return fserror.New(fserror.Unsupported, "", "", "the object %s of the archive has version %d of the format, this program knows %d: use the newer leasefs", s.Name(), le.Uint32(head[16:]), version)
	case [16]byte(head[24:40]) != id:
		return bad("it is of namespace %x", head[24:40])
	case uint64(len(records)) != uint64(le.Uint32(head[60:])):
		return bad("it has %d bytes of records, its header says %d", len(records), le.Uint32(head[60:]))
	case le.Uint32(head[20:]) != blockstore.CRC(records):
		return bad("the checksum of its records does not fit")
	}
	count := le.Uint32(head[56:])
	is := Segment{First: le.Uint64(head[48:]), Term: le.Uint64(head[40:]), Time: int64(le.Uint64(head[64:]))} //nolint:gosec // as it was
	if is.Last = is.First + uint64(count) - 1; is != s {
		return bad("it holds what %s should", is.Name())
	}
	err := group.DecodeRecords(records, s.First, count, from, fn)
	var framing *group.FramingError
	if errors.As(err, &framing) {
		return bad("%v", framing)
	}
	return err
}

// get reads an object. An error that says something of the object, and not that it is gone, is
// Damaged.
func get(ctx context.Context, from blockstore.Objects, s Segment) ([]byte, error) {
	object, err := blockstore.GetBytes(ctx, from, s.Name(), most+1)
	switch {
	case err == nil:
		return object, nil
	case ctx.Err() != nil || images.Unknown(err) || errors.Is(err, fserror.NotFound):
		return nil, fmt.Errorf("the object %s of the archive: %w", s.Name(), err)
	}
	return nil, fserror.New(fserror.Damaged, "", "", "the object %s of the archive cannot be read: %v", s.Name(), err).Because(fserror.ReasonArchive)
}
