package data

import (
	"context"
	"crypto/md5" //nolint:gosec // Hadoop's checksum of a block is made of it
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	"github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/namenode/share"
)

const (
	firstPiece = 64 << 10  // of a read, which may end after it
	nextPieces = 256 << 10 // of one that continues
	aheadFrom  = 1 << 20   // bytes after which blocks are fetched ahead
)

// reading is a file that is open for read.
type reading struct {
	*client.Reader
	grant files.Grant
	user  *users.User
	put   func()
}

func (r *reading) close() {
	if r.Reader != nil {
		_ = r.Reader.Close() // it only read
		r.put()
	}
	*r = reading{}
}

// open opens the file of a block for who has the token. It stays open for the
// connection's next request, which often is for the same one.
func (c *conn) open(g files.Grant) (*reading, error) {
	if r := &c.read; r.Reader != nil && r.grant.User == g.User && r.Reader.Cut() == g.Cut() &&
		r.grant.Block.ID == g.Block.ID && r.grant.Block.Offset == g.Block.Offset && r.Length() >= g.Block.Offset+g.Block.Length {
		return r, nil
	}
	c.read.close()
	u, err := c.session(g.User)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.life, moveTime)
	defer cancel()
	r, _, err := u.FS.OpenInode(ctx, g.Block.Inode(), fmt.Sprintf("block %d", g.Block.ID))
	if err != nil {
		c.cfg.Users.Release(u)
		return nil, err
	}
	c.read = reading{r, g, u, func() { c.cfg.Users.Release(u) }}
	if r.Cut() != g.Cut() {
		c.read.close()
		return nil, errors.New("the file was cut since the block was located; ask for its location again")
	}
	return &c.read, nil
}

// span is what a request is about, in the file.
func (r *reading) span(offset, length uint64) (from, end int64, err error) {
	b := r.grant.Block
	if offset > math.MaxInt64/4 || length > math.MaxInt64/4 {
		return 0, 0, fmt.Errorf("offset %d and length %d make no sense", offset, length)
	}
	from = b.Offset + int64(offset)
	end = from + int64(length)
	if end > r.Length() {
		return 0, 0, fmt.Errorf("offset %d and length %d do not match block %d, of which readers see %d bytes", offset, length, b.ID, r.Length()-b.Offset)
	}
	return from, end, nil
}

// send sends bytes of a block.
func (c *conn) send(m *hadoop.OpReadBlockProto) error {
	g, err := c.allowed(m.GetHeader().GetBaseHeader(), false)
	if err != nil {
		return c.refuse(hadoop.Status_ERROR_ACCESS_TOKEN, err)
	}
	r, err := c.open(g)
	if err != nil {
		return c.refuse(hadoop.Status_ERROR, err)
	}
	from, end, err := r.span(m.GetOffset(), m.GetLen())
	if err != nil {
		return c.refuse(hadoop.Status_ERROR, err)
	}
	kind := hadoop.ChecksumTypeProto_CHECKSUM_CRC32C
	if !m.GetSendChecksums() {
		kind = hadoop.ChecksumTypeProto_CHECKSUM_NULL
	}
	from -= (from - g.Block.Offset) % chunkSize
	if err := c.answer(&hadoop.BlockOpResponseProto{
		Status: hadoop.Status_SUCCESS.Enum(),
		ReadOpChecksumInfo: &hadoop.ReadOpChecksumInfoProto{
			Checksum:    &hadoop.ChecksumProto{Type: kind.Enum(), BytesPerChecksum: proto.Uint32(chunkSize)},
			ChunkOffset: proto.Uint64(uint64(from - g.Block.Offset)), //nolint:gosec // not negative
		},
	}); err != nil {
		return err
	}
	if err := c.stream(r, from, end, m.GetSendChecksums()); err != nil {
		return err
	}
	// The client says what became of it; then the connection can be used again.
	_ = c.SetReadDeadline(time.Now().Add(c.cfg.Idle))
	st := new(hadoop.ClientReadStatusProto)
	if err := c.receive(st); err != nil {
		return err
	}
	if s := st.GetStatus(); s != hadoop.Status_SUCCESS && s != hadoop.Status_CHECKSUM_OK {
		return fmt.Errorf("a client could not use block %d: %s", g.Block.ID, s)
	}
	return nil
}

// stream sends packets, the last one without data.
func (c *conn) stream(r *reading, from, end int64, checksums bool) error {
	base, seqno, begun := r.grant.Block.Offset, int64(0), from
	out := newOut(int(min(end-from, firstPiece)))
	ahead := false
	who := share.User(r.grant.User)
	defer func() {
		if ahead {
			c.read.close() // it keeps the blocks that were fetched ahead, and the next request may never come
			c.ahead.Give(1, who)
		}
	}()
	for ; from < end; seqno++ {
		if from == begun+firstPiece {
			out = newOut(int(min(end-from, nextPieces)))
		}
		if !ahead && from-begun >= aheadFrom {
			ahead = c.ahead.Take(1, who)
		}
		n, err := r.ReadAtContext(c.life, out.room()[:min(int64(len(out.room())), end-from)], from, ahead)
		if n == 0 {
			return fmt.Errorf("block %d was not sent whole: %w", r.grant.Block.ID, err)
		}
		if err := c.push(out.seal(n, from-base, seqno, false, checksums)); err != nil {
			return err
		}
		from += int64(n)
	}
	return c.push(newOut(0).seal(0, from-base, seqno, true, checksums))
}

// push sends bytes to a client that may be slow, but not silent.
func (c *conn) push(b []byte) error {
	_ = c.SetWriteDeadline(time.Now().Add(c.cfg.Idle))
	_, err := c.Write(b)
	return err
}

// whileThere returns a context that ends with the client, who has asked for something and waits
// for its answer. done ends the watch; it has to be called before more is read.
func (c *conn) whileThere() (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(c.life)
	_ = c.SetReadDeadline(time.Time{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if _, err := c.in.Peek(1); err != nil { // what it sends meanwhile stays for the next request
			cancel()
		}
	}()
	return ctx, func() {
		_ = c.SetReadDeadline(past)
		<-watched
		cancel()
	}
}

// checksum answers the checksum of a block: the MD5 of those of its chunks, or one over
// all of it. Of those that read whole blocks for that, some wait.
func (c *conn) checksum(m *hadoop.OpBlockChecksumProto) error {
	g, err := c.allowed(m.GetHeader(), false)
	if err != nil {
		return c.refuse(hadoop.Status_ERROR_ACCESS_TOKEN, err)
	}
	r, err := c.open(g)
	if err != nil {
		return c.refuse(hadoop.Status_ERROR, err)
	}
	length := m.GetHeader().GetBlock().GetNumBytes()
	from, end, err := r.span(0, length)
	if err == nil && end > g.Block.Offset+g.Block.Length {
		err = fmt.Errorf("block %d has %d bytes, not %d", g.Block.ID, g.Block.Length, length)
	}
	if err != nil {
		return c.refuse(hadoop.Status_ERROR, err)
	}
	ctx, done := c.whileThere()
	defer done()
	leave, err := c.sums.Enter(ctx, share.User(g.User))
	if err != nil {
		return c.refuse(hadoop.Status_ERROR, err)
	}
	defer leave()
	var (
		all = md5.New() //nolint:gosec // see the import
		one uint32
		sum [sumSize]byte
		buf = make([]byte, min(end-from, nextPieces))
	)
	for from < end {
		b := buf[:min(int64(len(buf)), end-from)]
		n, err := r.ReadAtContext(ctx, b, from, false)
		if n < len(b) {
			return c.refuse(hadoop.Status_ERROR, fmt.Errorf("block %d could not be read whole: %w", g.Block.ID, err))
		}
		one = crc32.Update(one, castagnoli, b)
		for len(b) > 0 {
			k := min(len(b), chunkSize)
			binary.BigEndian.PutUint32(sum[:], crc32.Checksum(b[:k], castagnoli))
			_, _ = all.Write(sum[:])
			b = b[k:]
		}
		from += int64(n)
	}
	kind := m.GetBlockChecksumOptions().GetBlockChecksumType()
	result := all.Sum(nil)
	if kind == hadoop.BlockChecksumTypeProto_COMPOSITE_CRC {
		result = binary.BigEndian.AppendUint32(nil, one)
	}
	return c.answer(&hadoop.BlockOpResponseProto{
		Status: hadoop.Status_SUCCESS.Enum(),
		ChecksumResponse: &hadoop.OpBlockChecksumResponseProto{
			BytesPerCrc: proto.Uint32(chunkSize), CrcPerBlock: proto.Uint64((length + chunkSize - 1) / chunkSize),
			BlockChecksum: result, CrcType: hadoop.ChecksumTypeProto_CHECKSUM_CRC32C.Enum(),
			BlockChecksumOptions: &hadoop.BlockChecksumOptionsProto{BlockChecksumType: kind.Enum(), StripeLength: proto.Uint64(m.GetBlockChecksumOptions().GetStripeLength())},
		},
	})
}
