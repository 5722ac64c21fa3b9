package content

import (
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// Block is one entry of a file's block list.
type Block struct {
	Key    blockstore.Key
	Stored uint32 // bytes of the object: data and checksum table
	Used   uint32 // bytes of its data that belong to the file
	CRC    uint32 // CRC32C of the whole object
}

// Code codes a block.
func (b *Block) Code(c *codec.Coder) {
	c.U64(&b.Key.Term)
	c.U64(&b.Key.Seq)
	c.U32(&b.Stored)
	c.U32(&b.Used)
	c.Sum32(&b.CRC)
}

// File is the content of a file. It is a value: methods that change it return a new one.
type File struct {
	Blocks []Block
	End    int64 // of the blocks, where the tail begins: the sum of Used, in bytes
	Tail   []byte
}

// Length is that of the file, in bytes.
func (f File) Length() int64 { return f.End + int64(len(f.Tail)) }

// Has reports whether the tail has these bytes at an offset of the file.
func (f File) Has(offset int64, data []byte) bool {
	begin := offset - f.End
	return begin >= 0 && begin+int64(len(data)) <= int64(len(f.Tail)) && begin <= int64(len(f.Tail)) &&
		string(f.Tail[begin:begin+int64(len(data))]) == string(data)
}

// HasBlock reports whether the file has this very block at this offset.
func (f File) HasBlock(offset int64, b Block) bool {
	begin := f.End
	for i := len(f.Blocks) - 1; i >= 0 && begin > offset; i-- {
		begin -= int64(f.Blocks[i].Used)
		if begin == offset {
			return f.Blocks[i] == b
		}
	}
	return false
}

// Commit is a block that is to become part of a file at Offset. Its first Covered bytes
// are the first of the tail; the rest of the tail stays. With Replace it replaces
// the last block, with whose bytes it begins.
type Commit struct {
	Offset  int64
	Block   Block
	Covered int64
	Replace bool
}

// Check says why a block cannot become part of a file, which may be open for write.
func (c Commit) Check(f File, open bool) error {
	before, begin := int64(0), f.End
	if c.Replace {
		if len(f.Blocks) == 0 {
			return fmt.Errorf("the file has no block to replace")
		}
		before = int64(f.Blocks[len(f.Blocks)-1].Used)
		begin -= before
	}
	b, covered, tail := c.Block, c.Covered, int64(len(f.Tail))
	used := int64(b.Used)
	switch {
	case b.Key.Seq == 0:
		return fmt.Errorf("the block has no key")
	case b.Used == 0 || b.Used > b.Stored:
		return fmt.Errorf("the block cannot have %d bytes of the file in %d stored", b.Used, b.Stored)
	case c.Offset != begin:
		return fmt.Errorf("its offset %d is not %d", c.Offset, begin)
	case covered < 0 || covered > tail:
		return fmt.Errorf("it covers %d bytes of a tail of %d", covered, tail)
	case used < before+covered:
		return fmt.Errorf("the block has %d bytes of the file, less than the %d that it takes the place of", used, before+covered)
	case used > before+covered && (c.Replace || covered < tail):
		return fmt.Errorf("the block's %d bytes would come between those of the tail", used)
	case used > before+covered && !open:
		return fmt.Errorf("the file is not open and the block makes it longer")
	case f.Length() > math.MaxInt64-used:
		return fmt.Errorf("the file would be too long")
	}
	return nil
}

// To returns the file with a block that was checked, and the blocks that it no longer has.
func (c Commit) To(f File) (changed File, lost []Block) {
	if c.Replace {
		last := len(f.Blocks) - 1
		lost = f.Blocks[last:]
		f.End -= int64(lost[0].Used)
		f.Blocks = f.Blocks[:last:last]
	}
	return File{
		Blocks: append(f.Blocks, c.Block),
		End:    f.End + int64(c.Block.Used),
		Tail:   CopyTail(f.Tail[c.Covered:]),
	}, lost
}

// Cut returns the file cut to fewer bytes, and the blocks that it no longer has.
func (f File) Cut(length int64) (short File, lost []Block) {
	if length >= f.End {
		f.Tail = CopyTail(f.Tail[:length-f.End])
		return f, nil
	}
	keep, begin := len(f.Blocks), f.End
	for keep > 0 && begin-int64(f.Blocks[keep-1].Used) >= length {
		keep--
		begin -= int64(f.Blocks[keep].Used)
	}
	lost = f.Blocks[keep:]
	if begin > length {
		// The last block is in part above the length: a list of its own, since
		// the old one must keep what it says.
		last := f.Blocks[keep-1]
		last.Used -= uint32(begin - length) //nolint:gosec // less than Used
		return File{Blocks: append(f.Blocks[:keep-1:keep-1], last), End: length}, lost
	}
	return File{Blocks: slices.Clone(f.Blocks[:keep]), End: length}, lost
}

// Join returns the file with the blocks and the tail of another behind it; only one that
// has no tail can be followed by one that is not empty.
func (f File) Join(g File) File {
	f.Blocks = append(f.Blocks, g.Blocks...)
	f.End += g.End
	if len(g.Tail) > 0 {
		f.Tail = ExactTail(g.Tail)
	}
	return f
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the CRC32C of data.
func Sum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// Append describes what was last appended to a file, so that a repetition is recognised
// even if the bytes have become part of a block since. Len 0: nothing was appended.
type Append struct {
	Offset int64
	Len    uint32
	CRC    uint32 // CRC32C
}

// NewAppend describes the append of data, at most MaxInt32 bytes, at an offset.
func NewAppend(offset int64, data []byte) Append {
	return Append{Offset: offset, Len: uint32(len(data)), CRC: Sum(data)} //nolint:gosec // as said
}

// Was reports whether these bytes were the last append, at this offset.
func (a Append) Was(offset int64, data []byte) bool {
	return a.Len != 0 && a.Offset == offset && int64(a.Len) == int64(len(data)) && a.CRC == Sum(data)
}

// Within reports whether a file of this length can contain the append.
func (a Append) Within(length int64) bool {
	return a.Offset >= 0 && a.Offset <= length && int64(a.Len) <= length-a.Offset
}
