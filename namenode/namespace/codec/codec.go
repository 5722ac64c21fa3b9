package codec

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Coder writes or reads fields one after the other, so that each layout is
// written down once, for both directions. A method that is handed a pointer
// writes what is there, or sets it to what it reads.
type Coder struct {
	writes bool
	buf    []byte  // writing: what was written; reading: what is left
	bad    *string // what was wrong first; reading: all is zero from there on
	// more, of an image, is called between items and before what may be long.
	// Writing: it takes what was written, if that is enough for a chunk; reading: it
	// makes n bytes ready, if there are so many.
	more func(n int)
}

// itemRoom is how many bytes any item takes at most, without its lists and texts.
const itemRoom = 512

// Encoder returns a Coder that appends to dst.
func Encoder(dst []byte) *Coder { return &Coder{writes: true, buf: dst} }

// Decoder returns a Coder that reads body. What it reads shares body's memory, but
// for texts.
func Decoder(body []byte) *Coder { return &Coder{buf: body} }

// Writes reports whether fields are written, not read.
func (c *Coder) Writes() bool { return c.writes }

// Written is dst of Encoder, and what was written behind it.
func (c *Coder) Written() []byte { return c.buf }

// Left is how many bytes of the body are not read yet.
func (c *Coder) Left() int { return len(c.buf) }

// Fail notes what is wrong, unless something was wrong before.
func (c *Coder) Fail(why string) {
	if c.bad == nil {
		c.bad = &why
	}
}

// OK reports whether nothing was wrong so far.
func (c *Coder) OK() bool { return c.bad == nil }

// Why is what was wrong first; "" if nothing was.
func (c *Coder) Why() string {
	if c.bad == nil {
		return ""
	}
	return *c.bad
}

// Next ends an item and reports whether to continue.
func (c *Coder) Next() bool {
	if n := len(c.buf); (n < itemRoom || n >= chunkTarget) && c.more != nil {
		c.more(itemRoom)
	}
	return c.bad == nil
}

// Append writes bytes as they are, without their number.
func (c *Coder) Append(b ...byte) { c.buf = append(c.buf, b...) }

// Take reads n bytes as they are, nil if there are not so many.
func (c *Coder) Take(n uint64) []byte {
	if c.bad != nil {
		return nil
	}
	if n > uint64(len(c.buf)) {
		c.Fail("bytes are missing")
		return nil
	}
	b := c.buf[:n:n]
	c.buf = c.buf[n:]
	return b
}

// Put writes an unsigned varint.
func (c *Coder) Put(v uint64) { c.buf = binary.AppendUvarint(c.buf, v) }

// Number reads an unsigned varint in its shortest form, of at most size bits.
func (c *Coder) Number(size int) uint64 {
	if c.bad != nil {
		return 0
	}
	v, n := binary.Uvarint(c.buf)
	switch {
	case n <= 0:
		c.Fail("a number is cut off or too large")
		return 0
	case n > 1 && c.buf[n-1] == 0:
		c.Fail("a number is not in its shortest form")
		return 0
	case bits.Len64(v) > size:
		c.Fail("a number is too large")
		return 0
	}
	c.buf = c.buf[n:]
	return v
}

// U64 is an unsigned varint, as U32 and U16 are.
func (c *Coder) U64(v *uint64) {
	if c.writes {
		c.Put(*v)
	} else {
		*v = c.Number(64)
	}
}

// U32 is an unsigned varint of at most 32 bits.
func (c *Coder) U32(v *uint32) {
	if c.writes {
		c.Put(uint64(*v))
	} else {
		*v = uint32(c.Number(32)) //nolint:gosec // Number checks the size
	}
}

// U16 is an unsigned varint of at most 16 bits.
func (c *Coder) U16(v *uint16) {
	if c.writes {
		c.Put(uint64(*v))
	} else {
		*v = uint16(c.Number(16)) //nolint:gosec // Number checks the size
	}
}

// U8 is one byte.
func (c *Coder) U8(v *uint8) {
	if c.writes {
		c.buf = append(c.buf, *v)
	} else if b := c.Take(1); b != nil {
		*v = b[0]
	}
}

// I64 is a signed number, its sign in the lowest bit.
func (c *Coder) I64(v *int64) {
	if c.writes {
		c.Put(uint64(*v)<<1 ^ uint64(*v>>63)) //nolint:gosec // zigzag
	} else {
		u := c.Number(64)
		*v = int64(u>>1) ^ -int64(u&1) //nolint:gosec // zigzag
	}
}

// Delta is I64 of how far v is from the value before.
func (c *Coder) Delta(v *int64, before int64) {
	d := *v - before // may wrap, and wraps back
	if c.I64(&d); !c.writes {
		*v = before + d
	}
}

// Bool is a number, 0 or 1.
func (c *Coder) Bool(v *bool) {
	switch {
	case !c.writes:
		*v = c.Number(1) == 1
	case *v:
		c.Put(1)
	default:
		c.Put(0)
	}
}

// Sum64 is a hash: eight bytes, little endian.
func (c *Coder) Sum64(v *uint64) {
	if c.writes {
		c.buf = binary.LittleEndian.AppendUint64(c.buf, *v)
	} else if b := c.Take(8); b != nil {
		*v = binary.LittleEndian.Uint64(b)
	}
}

// Sum32 is a checksum: four bytes, little endian.
func (c *Coder) Sum32(v *uint32) {
	if c.writes {
		c.buf = binary.LittleEndian.AppendUint32(c.buf, *v)
	} else if b := c.Take(4); b != nil {
		*v = binary.LittleEndian.Uint32(b)
	}
}

// Raw is sixteen bytes as they are.
func (c *Coder) Raw(v *[16]byte) {
	if c.writes {
		c.buf = append(c.buf, v[:]...)
	} else if b := c.Take(16); b != nil {
		copy(v[:], b)
	}
}

// Text is a length and so many bytes, copied.
func (c *Coder) Text(v *string) {
	if c.writes {
		c.Put(uint64(len(*v)))
		c.buf = append(c.buf, *v...)
		return
	}
	*v = string(c.Take(c.length()))
}

// Bytes is as Text, but shares the memory of what is read.
func (c *Coder) Bytes(v *[]byte) {
	if c.writes {
		c.Put(uint64(len(*v)))
		c.buf = append(c.buf, *v...)
		return
	}
	if b := c.Take(c.length()); len(b) > 0 {
		*v = b
	}
}

// length reads a length and makes so many bytes ready.
func (c *Coder) length() uint64 {
	n := c.Number(64)
	if c.more != nil {
		c.more(int(min(n, math.MaxInt32)) + itemRoom) //nolint:gosec // it is bounded
	}
	return n
}

// List codes a list item by item. Each takes at least size bytes, which bounds
// what is allocated.
func List[T any](c *Coder, v *[]T, size int, item func(*T)) {
	if c.writes {
		c.Put(uint64(len(*v)))
		for i := range *v {
			item(&(*v)[i])
			c.Next()
		}
		return
	}
	n, room := c.Number(64), uint64(len(c.buf)/size) //nolint:gosec // a length
	if n > room && c.more == nil {
		c.Fail("a list is longer than the record")
	}
	if n == 0 || c.bad != nil {
		return
	}
	*v = make([]T, 0, min(n, room))
	for ; n > 0 && c.bad == nil; n-- {
		var none T
		*v = append(*v, none)
		item(&(*v)[len(*v)-1])
		c.Next()
	}
}
