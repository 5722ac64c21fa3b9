package data

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hdfs/files"
	"github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// streamPause is for how long the next packet is expected behind a full one. A writer that is
	// slower than that makes each packet durable; one that flushes just at the end of a full packet
	// waits so long.
	streamPause = 50 * time.Millisecond
	// wholePause is for how long the end of the block is expected behind a short packet that
	// begins a file: then that is all of the file, and its close makes it durable. A writer
	// that flushes the beginning of a new file waits so long, once.
	wholePause = 2 * time.Millisecond
	// maxUnacked is how many packets wait for their acknowledgement.
	maxUnacked = 128
)

// setup says how a client begins to write.
func setup(m *hadoop.OpWriteBlockProto) (files.Setup, error) {
	b := m.GetHeader().GetBaseHeader().GetBlock()
	length := func(n uint64) int64 { return int64(min(n, math.MaxInt64)) } //nolint:gosec // no more than that
	s := files.Setup{
		Stamp: length(m.GetLatestGenerationStamp()),
		Block: files.Block{ID: length(b.GetBlockId()), Stamp: length(b.GetGenerationStamp()), Length: length(b.GetNumBytes())},
		Min:   length(m.GetMinBytesRcvd()), Max: math.MaxInt64,
	}
	switch m.GetStage() {
	case hadoop.OpWriteBlockProto_PIPELINE_SETUP_CREATE:
		s.Empty = true
	case hadoop.OpWriteBlockProto_PIPELINE_SETUP_APPEND, hadoop.OpWriteBlockProto_PIPELINE_SETUP_APPEND_RECOVERY, hadoop.OpWriteBlockProto_PIPELINE_CLOSE_RECOVERY:
		s.Max = s.Min // nothing of this connection is on its way: what the block has more is not this client's
	case hadoop.OpWriteBlockProto_PIPELINE_SETUP_STREAMING_RECOVERY:
		s.Max = max(s.Min, length(m.GetMaxBytesRcvd()))
	default:
		return s, fmt.Errorf("a block is not written by beginning with %s", m.GetStage())
	}
	return s, nil
}

// write takes the bytes of a block.
func (c *conn) write(m *hadoop.OpWriteBlockProto) error {
	g, err := c.allowed(m.GetHeader().GetBaseHeader(), true)
	if err != nil {
		return c.refuse(hadoop.Status_ERROR_ACCESS_TOKEN, err)
	}
	s, err := setup(m)
	switch {
	case err != nil:
		return c.refuse(hadoop.Status_ERROR_UNSUPPORTED, err)
	case len(m.GetTargets()) > 0:
		return c.refuse(hadoop.Status_ERROR_UNSUPPORTED, errors.New("the gateway passes nothing on to others; it is the only one in a pipeline"))
	}
	sums, err := newSums(m.GetRequestedChecksum())
	if err != nil {
		return c.refuse(hadoop.Status_ERROR_UNSUPPORTED, err)
	}
	ctx, cancel := context.WithTimeout(c.life, moveTime)
	pipe, err := c.cfg.Files.Pipe(ctx, g, s)
	cancel()
	if err != nil {
		return c.refuse(hadoop.Status_ERROR, err)
	}
	defer pipe.Close()
	defer context.AfterFunc(c.life, pipe.Close)() // a flush under way does not hold up the end
	closing := m.GetStage() == hadoop.OpWriteBlockProto_PIPELINE_CLOSE_RECOVERY
	if closing {
		if err := pipe.Flush(); err != nil {
			return c.refuse(hadoop.Status_ERROR, err)
		}
	}
	if err := c.answer(&hadoop.BlockOpResponseProto{Status: hadoop.Status_SUCCESS.Enum(), FirstBadLink: proto.String("")}); err != nil || closing {
		return err
	}
	return c.take(pipe, sums, s.Empty)
}

// past is a deadline that wakes whoever waits for a connection.
var past = time.Unix(1, 0)

// within lets the next read take so long, and nothing once ctx has ended: whoever sets the
// deadline to the past then may have done so before.
func (c *conn) within(ctx context.Context, d time.Duration) {
	_ = c.SetReadDeadline(time.Now().Add(d))
	if ctx.Err() != nil {
		_ = c.SetReadDeadline(past)
	}
}

// ack is what is to be said of a packet.
type ack struct {
	seqno  int64
	end    int64 // of the file, with its bytes
	last   bool  // it ends the block
	short  bool  // it is not full: only the end of the block behind it says that nobody waits for it to be durable
	flush  bool  // it is acknowledged when it is durable, and that is to be at once
	pause  time.Duration
	status hadoop.Status
}

// take takes packets until the last one of the block. Acknowledgements are sent meanwhile.
func (c *conn) take(pipe *files.Pipe, s sums, first bool) error {
	if c.in.Size() < inBuffer {
		large := buffers.Get().(*bufio.Reader) //nolint:errcheck,forcetypeassert // it has no others
		large.Reset(c.in)
		c.in = large
	}
	// When another takes over, or nothing can be acknowledged, whoever waits here is woken.
	ctx, cancel := context.WithCancel(pipe.Context())
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })()
	acks, acked := make(chan ack, maxUnacked), make(chan error, 1)
	go func() {
		err := c.acknowledge(pipe, acks)
		if err != nil {
			cancel()
			for range acks { //nolint:revive // he may be waiting for room
			}
		}
		acked <- err
	}()
	err := c.takeAll(ctx, pipe, &packets{in: c.in, sums: s}, first, acks)
	close(acks)
	err = cmp.Or(<-acked, err)
	if err != nil && pipe.Durable() < pipe.End() { // the client may have died, and was told that this has arrived
		defer time.AfterFunc(moveTime, pipe.Close).Stop()
		_ = pipe.Flush() // the client's next call is told why not
	}
	return err
}

func (c *conn) takeAll(ctx context.Context, pipe *files.Pipe, p *packets, first bool, acks chan<- ack) error {
	end, longest := pipe.End(), 0
	for {
		c.within(ctx, c.cfg.Idle)
		h, err := p.next()
		if err != nil {
			return c.stopped(pipe, err)
		}
		n, seqno := int(h.GetDataLen()), h.GetSeqno()
		if n > 0 {
			c.within(ctx, moveTime)
			err := p.body(n, func(at int, b []byte) (err error) {
				end, err = pipe.Write(h.GetOffsetInBlock()+int64(at), b)
				return err
			})
			var fe *fserror.Error
			switch {
			case errors.Is(err, errSum):
				acks <- ack{seqno: seqno, status: hadoop.Status_ERROR_CHECKSUM}
				return fmt.Errorf("%s: packet %d: %w", pipe.Path(), seqno, err)
			case errors.As(err, &fe):
				acks <- ack{seqno: seqno, status: hadoop.Status_ERROR}
				return err
			case err != nil:
				return c.stopped(pipe, err)
			}
		}
		last := h.GetLastPacketInBlock()
		a := ack{seqno: seqno, end: end, last: last, short: n > 0 && !p.sums.isFull(n, longest), flush: h.GetSyncBlock() || last && pipe.Full(end)}
		switch {
		case !a.short:
			a.pause = streamPause
		case first && end == int64(n): // it begins the file
			a.pause = c.whole
		default:
			a.flush = true
		}
		longest = max(longest, n)
		acks <- a
		if last {
			return nil
		}
	}
}

// stopped is why no more is read.
func (c *conn) stopped(pipe *files.Pipe, err error) error {
	if pipe.Context().Err() != nil {
		return context.Cause(pipe.Context())
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the client has closed the connection before the end of the block", pipe.Path())
	}
	return fmt.Errorf("%s: %w", pipe.Path(), err)
}

// acknowledge says what became of packets, in their order.
func (c *conn) acknowledge(pipe *files.Pipe, acks <-chan ack) error {
	out := bufio.NewWriterSize(c.Conn, 1<<10)
	wait := time.NewTimer(streamPause)
	defer wait.Stop()
	a, more := <-acks
	for more {
		var (
			next    ack
			hasNext bool
		)
		if a.status == hadoop.Status_SUCCESS && a.end > pipe.Durable() {
			if !a.flush {
				late := false
				select {
				case next, hasNext = <-acks:
				default:
					if err := c.sent(out); err != nil {
						return err
					}
					wait.Reset(a.pause)
					select {
					case next, hasNext = <-acks:
					case <-wait.C:
						late = true
					}
				}
				// Else it is one of a stream, or all of a file, or the end of the block.
				a.flush = late || !hasNext && !a.last || a.short && !next.last
			}
			if a.flush {
				if err := pipe.Flush(); err != nil {
					a.status = hadoop.Status_ERROR
					_, _ = protodelim.MarshalTo(out, &hadoop.PipelineAckProto{Seqno: &a.seqno, Reply: []hadoop.Status{a.status}})
					_ = c.sent(out)
					return err
				}
			}
		}
		if _, err := protodelim.MarshalTo(out, &hadoop.PipelineAckProto{Seqno: &a.seqno, Reply: []hadoop.Status{a.status}}); err != nil {
			return err
		}
		if hasNext {
			a = next
			continue
		}
		select {
		case a, more = <-acks:
		default:
			if err := c.sent(out); err != nil {
				return err
			}
			a, more = <-acks
		}
	}
	return c.sent(out)
}

// sent sends what there is.
func (c *conn) sent(out *bufio.Writer) error {
	if out.Buffered() == 0 {
		return nil
	}
	_ = c.SetWriteDeadline(time.Now().Add(moveTime))
	return out.Flush()
}
