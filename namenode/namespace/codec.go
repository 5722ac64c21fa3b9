package namespace

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// EncodeOp appends a record's body to dst. The layout is in
// docs/design/records-and-image.md. The op is not changed.
func EncodeOp(dst []byte, call CallID, op Op) (typ uint8, body []byte) {
	c := coder{buf: dst, encode: true}
	c.call(&call)
	op.fields(&c)
	return op.opType(), c.buf
}

// DecodeOp is the inverse of EncodeOp. It accepts only what EncodeOp writes:
// an unknown kind, missing or trailing bytes, a length or count that the body
// cannot hold, a number that is not in its shortest form are errors of kind
// Damaged. It takes no more memory than a small multiple of the body. Data in
// the op are a part of body, not a copy.
func DecodeOp(typ uint8, body []byte) (CallID, Op, error) {
	op := newOp(typ)
	if op == nil {
		return CallID{}, nil, fserror.New(fserror.Damaged, "decode", "", "unknown kind of record %d; it was written by a newer leasefs or is damaged", typ)
	}
	c := coder{buf: body}
	var call CallID
	c.call(&call)
	op.fields(&c)
	if c.bad == nil && len(c.buf) > 0 {
		c.fail("bytes after the end")
	}
	if c.bad != nil {
		return CallID{}, nil, fserror.New(fserror.Damaged, "decode", "", "record of kind %s: %s at byte %d of %d", opName(op), *c.bad, len(body)-len(c.buf), len(body))
	}
	return call, op, nil
}

// coder writes or reads fields one after the other, so that each layout is
// written down once, for both directions.
type coder struct {
	encode bool
	buf    []byte  // encode: what was written; decode: what is left
	bad    *string // what was wrong first; decode: all is zero from there on
	// more, of an image, is called between items and before what may be long.
	// encode: it takes what was written, if that is enough for a chunk; decode: it
	// makes n bytes ready, if there are so many.
	more func(n int)
}

// itemRoom is how many bytes any item takes at most, without its lists and strings.
const itemRoom = 512

func (c *coder) fail(why string) {
	if c.bad == nil {
		c.bad = &why
	}
}

// next ends an item and reports whether to continue.
func (c *coder) next() bool {
	if n := len(c.buf); (n < itemRoom || n >= chunkTarget) && c.more != nil {
		c.more(itemRoom)
	}
	return c.bad == nil
}

// take returns the next n bytes of what is read, nil if there are not so many.
func (c *coder) take(n uint64) []byte {
	if c.bad != nil {
		return nil
	}
	if n > uint64(len(c.buf)) {
		c.fail("bytes are missing")
		return nil
	}
	b := c.buf[:n:n]
	c.buf = c.buf[n:]
	return b
}

// put writes an unsigned varint.
func (c *coder) put(v uint64) { c.buf = binary.AppendUvarint(c.buf, v) }

// number reads an unsigned varint in its shortest form, of at most size bits.
func (c *coder) number(size int) uint64 {
	if c.bad != nil {
		return 0
	}
	v, n := binary.Uvarint(c.buf)
	switch {
	case n <= 0:
		c.fail("a number is cut off or too large")
		return 0
	case n > 1 && c.buf[n-1] == 0:
		c.fail("a number is not in its shortest form")
		return 0
	case bits.Len64(v) > size:
		c.fail("a number is too large")
		return 0
	}
	c.buf = c.buf[n:]
	return v
}

func (c *coder) u64(v *uint64) {
	if c.encode {
		c.put(*v)
	} else {
		*v = c.number(64)
	}
}

func (c *coder) u32(v *uint32) {
	if c.encode {
		c.put(uint64(*v))
	} else {
		*v = uint32(c.number(32)) //nolint:gosec // number checks the size
	}
}

func (c *coder) u16(v *uint16) {
	if c.encode {
		c.put(uint64(*v))
	} else {
		*v = uint16(c.number(16)) //nolint:gosec // number checks the size
	}
}

func (c *coder) inode(v *InodeID) { c.u64((*uint64)(v)) }

// i64 is a signed number, its sign in the lowest bit.
func (c *coder) i64(v *int64) {
	if c.encode {
		c.put(uint64(*v)<<1 ^ uint64(*v>>63)) //nolint:gosec // zigzag
	} else {
		u := c.number(64)
		*v = int64(u>>1) ^ -int64(u&1) //nolint:gosec // zigzag
	}
}

// delta is i64 of how far v is from the value before.
func (c *coder) delta(v *int64, before int64) {
	d := *v - before // may wrap, and wraps back
	if c.i64(&d); !c.encode {
		*v = before + d
	}
}

func (c *coder) bool(v *bool) {
	switch {
	case !c.encode:
		*v = c.number(1) == 1
	case *v:
		c.put(1)
	default:
		c.put(0)
	}
}

// sum is a checksum or hash: eight bytes, little endian.
func (c *coder) sum64(v *uint64) {
	if c.encode {
		c.buf = binary.LittleEndian.AppendUint64(c.buf, *v)
	} else if b := c.take(8); b != nil {
		*v = binary.LittleEndian.Uint64(b)
	}
}

func (c *coder) sum32(v *uint32) {
	if c.encode {
		c.buf = binary.LittleEndian.AppendUint32(c.buf, *v)
	} else if b := c.take(4); b != nil {
		*v = binary.LittleEndian.Uint32(b)
	}
}

// raw is sixteen bytes as they are.
func (c *coder) raw(v *[16]byte) {
	if c.encode {
		c.buf = append(c.buf, v[:]...)
	} else if b := c.take(16); b != nil {
		copy(v[:], b)
	}
}

func (c *coder) string(v *string) {
	if c.encode {
		c.put(uint64(len(*v)))
		c.buf = append(c.buf, *v...)
	} else {
		n := c.number(64)
		if c.more != nil {
			c.more(int(min(n, math.MaxInt32)) + itemRoom) //nolint:gosec // it is bounded
		}
		*v = string(c.take(n))
	}
}

func (c *coder) bytes(v *[]byte) {
	if c.encode {
		c.put(uint64(len(*v)))
		c.buf = append(c.buf, *v...)
		return
	}
	n := c.number(64)
	if c.more != nil {
		c.more(int(min(n, math.MaxInt32)) + itemRoom) //nolint:gosec // it is bounded
	}
	if b := c.take(n); len(b) > 0 {
		*v = b
	}
}

// list codes a list item by item. Each takes at least size bytes, which bounds
// what is allocated.
func list[T any](c *coder, v *[]T, size int, item func(*T)) {
	if c.encode {
		c.put(uint64(len(*v)))
		for i := range *v {
			item(&(*v)[i])
			c.next()
		}
		return
	}
	n, room := c.number(64), uint64(len(c.buf)/size) //nolint:gosec // a length
	if n > room && c.more == nil {
		c.fail("a list is longer than the record")
	}
	if n == 0 || c.bad != nil {
		return
	}
	*v = make([]T, 0, min(n, room))
	for ; n > 0 && c.bad == nil; n-- {
		var none T
		*v = append(*v, none)
		item(&(*v)[len(*v)-1])
		c.next()
	}
}

func (c *coder) strings(v *[]string)         { list(c, v, 2, c.string) } // names: never empty
func (c *coder) inodes(v *[]InodeID)         { list(c, v, 1, c.inode) }
func (c *coder) keys(v *[]blockstore.Key)    { list(c, v, 2, c.key) }
func (c *coder) key(v *blockstore.Key)       { c.u64(&v.Term); c.u64(&v.Seq) }
func (c *coder) storedBlock(v *StoredBlock)  { c.key(&v.Key); c.u32(&v.Stored) }
func (c *coder) block(v *Block)              { c.key(&v.Key); c.u32(&v.Stored); c.u32(&v.Used); c.sum32(&v.CRC) }
func (c *coder) id16(v *[16]byte)            { c.raw(v) }
func (c *coder) owner(user, group *string)   { c.string(user); c.string(group) }
func (c *coder) entry(d *InodeID, n *string) { c.inode(d); c.string(n) }

func (c *coder) holder(v *Holder) {
	c.string(&v.User)
	c.string(&v.Client)
	c.raw((*[16]byte)(&v.Session))
	c.string(&v.Host)
	c.i64(&v.PID)
	c.i64(&v.TTL)
}

// call is one byte 0 for a record without a call.
func (c *coder) call(v *CallID) {
	has := !v.none()
	c.bool(&has)
	if !has {
		return
	}
	c.raw((*[16]byte)(&v.Session))
	c.u64(&v.Seq)
	c.u64(&v.Acked)
	c.sum64(&v.Hash)
	if !c.encode && c.bad == nil && v.none() {
		c.fail("a call without a session")
	}
}

func (c *coder) lease(v *LeaseID) { c.u64((*uint64)(v)) }

func (c *coder) leaseOwner(v *Owner) {
	c.string(&v.User)
	c.string(&v.Client)
	c.string(&v.Host)
}

// ageSize is how many bytes an age takes at least.
const ageSize = 16 + 1 + 1 + 1

func (c *coder) age(v *Age) {
	c.raw((*[16]byte)(&v.Session))
	c.inode(&v.Inode)
	c.lease(&v.Lease)
	c.i64(&v.MS)
}

// u8 is one byte.
func (c *coder) u8(v *uint8) {
	if c.encode {
		c.buf = append(c.buf, *v)
	} else if b := c.take(1); b != nil {
		*v = b[0]
	}
}
