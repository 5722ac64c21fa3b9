package blockio

import (
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/leasefs/leasefs/internal/blockcache"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// urlMargin is how long before its end a URL is not begun with any more.
const urlMargin = 5 * time.Second

// List is a run of a file's blocks, as one answer listed them, and the tail if it
// follows them. It is not changed once made.
type List struct {
	From, To int64 // bytes of the file
	Blocks   []Block
	TailOff  int64
	Tail     []byte

	fresh   time.Time // when its URLs were signed
	expires time.Time
}

// Block is one block of a file.
type Block struct {
	Key     blockstore.Key
	Off     int64 // in the file
	Used    int64 // bytes of it that belong to the file
	Data    int64 // bytes of data in the object
	Stored  int64
	CRC     uint32
	URL     string
	Headers map[string]string
	Cut     uint64 // of the file when it had this block here
}

// cached is the block as a block cache knows it.
func (b *Block) cached() blockcache.Block {
	return blockcache.Block{Key: b.Key, Stored: b.Stored, CRC: b.CRC}
}

// NewList checks an answer about the file at path, which was asked for at that
// time from that offset on, and makes a List of it.
func NewList(resp *pb.GetFileResponse, path string, at time.Time, asked int64) (*List, error) {
	bad := func(format string, args ...any) error {
		return fserror.New(fserror.Internal, "open", path, "inconsistent block list: %s", fmt.Sprintf(format, args...))
	}
	l := &List{
		From: asked, To: asked, Blocks: make([]Block, 0, len(resp.GetBlocks())),
		fresh: at, expires: at.Add(time.Duration(resp.GetUrlsExpireMs()) * time.Millisecond),
	}
	off := resp.GetBlocksOffset()
	for i, listed := range resp.GetBlocks() {
		if i == 0 {
			l.From = off
		}
		b := Block{
			Key: blockstore.Key{Term: listed.GetTerm(), Seq: listed.GetSeq()}, Off: off, Used: listed.GetUsedLength(), Stored: listed.GetStoredLength(),
			CRC: listed.GetCrc32C(), URL: listed.GetUrl(), Headers: listed.GetHeaders(), Cut: resp.GetCut(),
		}
		var err error
		if b.Data, err = blockstore.DataLength(b.Stored); err != nil || b.Used <= 0 || b.Used > b.Data {
			return nil, bad("block %s has %d of %d stored bytes", b.Key, b.Used, b.Stored)
		}
		if off < 0 || off > math.MaxInt64-b.Used {
			return nil, bad("block %s is at %d", b.Key, off)
		}
		l.Blocks = append(l.Blocks, b)
		off += b.Used
		l.To = off
	}
	if resp.GetMoreBlocks() {
		return l, nil
	}
	l.Tail = resp.GetTail()
	l.TailOff = max(resp.GetTailOffset(), asked)
	if len(l.Tail) == 0 {
		return l, nil
	}
	if blockstore.CRC(l.Tail) != resp.GetTailCrc32C() {
		return nil, fserror.New(fserror.Damaged, "open", path, "the bytes in the file's tail, from offset %d on, do not match their checksum", l.TailOff)
	}
	if l.TailOff < 0 || l.TailOff > math.MaxInt64-int64(len(l.Tail)) {
		return nil, bad("the tail is at %d", l.TailOff)
	}
	if len(l.Blocks) > 0 && l.To != l.TailOff {
		return nil, bad("blocks end at %d, the tail begins at %d", l.To, l.TailOff)
	}
	if len(l.Blocks) == 0 {
		l.From = l.TailOff
	}
	l.To = l.TailOff + int64(len(l.Tail))
	return l, nil
}

// Has reports whether the byte is in the List.
func (l *List) Has(off int64) bool { return off >= l.From && off < l.To }

// Find returns the block that holds the byte, or nil if it is in the tail.
func (l *List) Find(off int64) *Block {
	i := l.index(off)
	if i == len(l.Blocks) {
		return nil
	}
	return &l.Blocks[i]
}

func (l *List) index(off int64) int {
	return sort.Search(len(l.Blocks), func(i int) bool { return l.Blocks[i].Off+l.Blocks[i].Used > off })
}

// Newer reports whether the List's URLs were signed after that time, and are good
// for a while.
func (l *List) Newer(than time.Time) bool {
	return l.fresh.After(than) && time.Until(l.expires) > urlMargin
}
