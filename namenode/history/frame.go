package history

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

const (
	magic       = "LEASEHIS"
	version     = 1
	headerBytes = len(magic) + 4 + 16 + 8 + 8 + 4
	frameHead   = 8
	// frameSpans is how many spans a frame has, if no single record ended more.
	frameSpans = 1000
	// minSpan is how many bytes a span takes at least.
	minSpan = 9
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// point is a record, its time, and the reign that it is of.
type point struct {
	txid  uint64
	ms    int64
	term  uint64
	nonce [16]byte
}

// frame is a part of the history: what ended behind one record and up to another.
type frame struct {
	from, to point // of from, the reign is not told
	spans    []Span
}

func header(id [16]byte, at point) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version)
	b = append(b, id[:]...)
	b = binary.LittleEndian.AppendUint64(b, at.txid)
	b = binary.LittleEndian.AppendUint64(b, uint64(at.ms)) //nolint:gosec // as it is
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readHeader returns after which record a file of the namespace begins; false if it is none.
func readHeader(b []byte, id [16]byte) (at point, ok bool) {
	if len(b) < headerBytes {
		return at, false
	}
	b = b[:headerBytes]
	at.txid = binary.LittleEndian.Uint64(b[28:])
	at.ms = int64(binary.LittleEndian.Uint64(b[36:])) //nolint:gosec // as it is
	return at, string(b) == string(header(id, at))
}

// appendFrame appends a frame to b.
func appendFrame(b []byte, f *frame) []byte {
	begin := len(b)
	c := codec.Encoder(append(b, make([]byte, frameHead)...))
	numbers := map[*namespace.Holder]uint32{}
	var holders []*namespace.Holder
	for i := range f.spans {
		s := &f.spans[i]
		if s.By != nil {
			s.by = &namespace.Holder{User: s.By.User, Client: s.By.Client, Host: s.By.Host}
		}
		for _, h := range [2]*namespace.Holder{s.Holder, s.by} {
			if _, known := numbers[h]; h != nil && !known {
				holders = append(holders, h)
				numbers[h] = uint32(len(holders)) //nolint:gosec // twice as many as spans at most
			}
		}
	}
	f.code(c, &holders, numbers)
	b = c.Written()
	payload := b[begin+frameHead:]
	binary.LittleEndian.PutUint32(b[begin:], uint32(len(payload))) //nolint:gosec // maxWaiting bounds it
	binary.LittleEndian.PutUint32(b[begin+4:], crc32.Checksum(payload, castagnoli))
	return b
}

// code is the layout of a frame's payload. numbers are those of the holders, from 1 on.
func (f *frame) code(c *codec.Coder, holders *[]*namespace.Holder, numbers map[*namespace.Holder]uint32) {
	c.U64(&f.from.txid)
	c.I64(&f.from.ms)
	c.U64(&f.to.txid)
	c.I64(&f.to.ms)
	c.U64(&f.to.term)
	c.Raw(&f.to.nonce)
	codec.List(c, holders, 21, func(h **namespace.Holder) {
		if *h == nil {
			*h = new(namespace.Holder)
		}
		(*h).Code(c)
	})
	holder := func(h **namespace.Holder) {
		n := numbers[*h]
		if c.U32(&n); int64(n) > int64(len(*holders)) {
			c.Fail("there is no such holder")
		} else if n > 0 {
			*h = (*holders)[n-1]
		}
	}
	last, place := f.from.txid, uint32(0)
	codec.List(c, &f.spans, minSpan, func(s *Span) {
		more := s.TxID - last
		c.U64(&more)
		if more > 0 {
			last, place = last+more, 0
		}
		s.TxID, s.N = last, place
		place++
		c.U64((*uint64)(&s.Lease))
		if s.Lease != 0 {
			c.Text(&s.Name)
		} else {
			c.U64((*uint64)(&s.Inode))
			since := s.TxID - s.Epoch
			c.U64(&since)
			s.Epoch = s.TxID - since
			c.U64((*uint64)(&s.Dir))
			c.Text(&s.Path)
		}
		c.Delta(&s.To, f.from.ms)
		c.Delta(&s.From, s.To)
		c.Text(&s.Why)
		holder(&s.Holder)
		holder(&s.by)
		if !c.Writes() && s.by != nil {
			s.By = &tables.LeaseOwner{User: s.by.User, Client: s.by.Client, Host: s.by.Host}
		}
	})
}

// cutFrame takes a frame off b. ok is false if there is no whole one.
func cutFrame(b []byte) (payload, rest []byte, ok bool) {
	if len(b) < frameHead {
		return nil, b, false
	}
	n := binary.LittleEndian.Uint32(b)
	if int64(n) > int64(len(b)-frameHead) || n > math.MaxInt32 {
		return nil, b, false
	}
	payload, rest = b[frameHead:frameHead+int(n)], b[frameHead+int(n):]
	return payload, rest, crc32.Checksum(payload, castagnoli) == binary.LittleEndian.Uint32(b[4:])
}

// readFrame decodes a payload; false if it is none.
func readFrame(payload []byte) (f frame, ok bool) {
	c := codec.Decoder(payload)
	var holders []*namespace.Holder
	f.code(c, &holders, nil)
	return f, c.OK() && c.Left() == 0 && f.from.txid <= f.to.txid
}
