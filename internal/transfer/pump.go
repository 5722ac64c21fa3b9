package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Sink is what Pump writes to: a *client.Writer.
type Sink interface {
	// WriteContext appends; its wait for room ends with the context.
	WriteContext(ctx context.Context, p []byte) (int, error)
	// Flush makes durable what was written.
	Flush(ctx context.Context) error
	// Durable is the file's flushed length in bytes.
	Durable() int64
	// Context ends, with the cause, when the lease is lost.
	Context() context.Context
}

// FlushMode is when Pump flushes.
type FlushMode int

// The modes of Pump.
const (
	// FlushIdle flushes when no more input is there: at once in a trickle, and
	// seldom in a flood.
	FlushIdle FlushMode = iota
	// FlushLine flushes whole lines as they come; those that come during a
	// flush go together.
	FlushLine
	// FlushBlock leaves it to the writer, which makes full blocks durable.
	FlushBlock
	// FlushEvery flushes when the oldest unflushed byte is PumpOptions.Every old.
	FlushEvery
)

// PumpOptions are those of Pump.
type PumpOptions struct {
	Mode  FlushMode
	Every time.Duration // of FlushEvery
	// Durable, if set, is called with the file's length after each flush, and
	// in FlushBlock when it has grown. Its error ends the pump.
	Durable func(length int64) error
}

const (
	chunkSize = 256 << 10 // bytes of one read
	chunks    = 8         // reads that may wait: more input gathers during a flush

	flood      = 128 << 10             // unflushed bytes from which input is no trickle
	trickleGap = time.Millisecond      // pause after which a trickle is flushed
	floodGap   = 10 * time.Millisecond // the same of a flood
	idleMax    = time.Second           // age at which FlushIdle flushes anyway
	gatherMax  = 20 * time.Millisecond // age at which a flush waits for no more that is there already
	lineMax    = 1 << 20               // bytes of a line that are held back at most
	// stopGrace is how long writes and flushes may continue after a signal, and restGap how long a read
	// that is under way may take then to bring what is there already.
	stopGrace = 3 * time.Second
	restGap   = 50 * time.Millisecond
)

// Pump copies src to dst until its end and flushes on the way. What was read
// last may still be unflushed when it returns nil: closing dst does that.
//
// It returns when ctx or the lease of dst ends, though a read of src is under way
// (its goroutine stays until that read returns), with the cause. When ctx ends it
// first makes durable what was read, within seconds: a pipe does not have it any
// more. Of FlushLine that is whole lines.
func Pump(ctx context.Context, dst Sink, src io.Reader, opts PumpOptions) error {
	halt, gone := make(chan struct{}), make(chan struct{})
	defer close(gone)
	p := &pump{dst: dst, opts: opts, acked: dst.Durable()}
	in := make(chan chunk, chunks)
	free := make(chan []byte, chunks+2)
	go readChunks(src, in, free, halt, gone)

	late, cancel := lingering(ctx, stopGrace)
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		// What ended is told before more is taken in.
		if err := ended(ctx, dst); err != nil {
			close(halt)
			p.rest(late, in)
			return err
		}
		now := time.Now()
		wait, due := p.due(now)
		// What came during the last flush goes into this one.
		if due && (len(in) == 0 || now.Sub(p.first) > gatherMax) {
			if err := p.flush(late); err != nil {
				return p.because(ctx, err)
			}
			continue
		}
		timer.Reset(max(0, wait))
		select {
		case <-ctx.Done():
		case <-dst.Context().Done():
		case <-timer.C:
		case c := <-in:
			err := p.take(late, c)
			if err == nil && c.err != nil {
				return p.finish(late, c.err)
			}
			if err != nil {
				return p.because(ctx, err)
			}
			free <- c.buf
		}
	}
}

// rest writes and makes durable what was read, as far as that is possible until ctx ends. What fails is
// not told: the length that is told to be durable does not have it.
func (p *pump) rest(ctx context.Context, in <-chan chunk) {
	gap := time.NewTimer(restGap)
	defer gap.Stop()
	for {
		select {
		case c, more := <-in:
			if more && p.take(ctx, c) != nil {
				return
			}
			if more && c.err == nil {
				gap.Reset(restGap)
				continue
			}
		case <-gap.C: // the read waits for input
		case <-p.dst.Context().Done():
			return
		}
		if p.dirty > 0 {
			_ = p.flush(ctx)
		}
		select {
		case c, more := <-in: // of a read that was under way: there is none after it
			if more && p.take(ctx, c) == nil && p.dirty > 0 {
				_ = p.flush(ctx)
			}
		default:
		}
		return
	}
}

// because is what ended ctx or the lease, if one did, rather than err.
func (p *pump) because(ctx context.Context, err error) error {
	if cause := ended(ctx, p.dst); cause != nil {
		return cause
	}
	return err
}

func ended(ctx context.Context, dst Sink) error {
	if err := context.Cause(dst.Context()); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// lingering returns a context that ends d after parent does.
func lingering(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	unhook := context.AfterFunc(parent, func() {
		t := time.AfterFunc(d, func() { cancel(context.Cause(parent)) })
		context.AfterFunc(ctx, func() { t.Stop() })
	})
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// chunk is one read.
type chunk struct {
	buf  []byte // whole, to be used again
	data []byte
	err  error
}

// readChunks reads ahead until the end, an error or halt, and hands over what it has read unless the
// taker is gone.
func readChunks(src io.Reader, in chan<- chunk, free chan []byte, halt, gone <-chan struct{}) {
	defer close(in)
	for {
		select {
		case <-halt:
			return
		default:
		}
		var buf []byte
		select {
		case buf = <-free:
		default:
			buf = make([]byte, chunkSize)
		}
		n, err := src.Read(buf)
		select {
		case in <- chunk{buf, buf[:n], err}:
		case <-gone:
			return
		}
		if err != nil {
			return
		}
	}
}

// pump is what is known about the bytes that are not durable yet.
type pump struct {
	dst   Sink
	opts  PumpOptions
	acked int64 // length that was told last

	line  []byte    // of FlushLine: the beginning of a line
	dirty int64     // bytes written since the last flush
	first time.Time // when the oldest of them came
	last  time.Time // when the newest of them came
}

// due says whether to flush now, and else how long it has time.
func (p *pump) due(now time.Time) (time.Duration, bool) {
	if p.dirty == 0 || p.opts.Mode == FlushBlock {
		return time.Hour, false
	}
	var at time.Time
	switch p.opts.Mode {
	case FlushLine:
		return 0, true
	case FlushEvery:
		at = p.first.Add(p.opts.Every)
	default:
		gap := trickleGap
		if p.dirty >= flood {
			gap = floodGap
		}
		at = p.last.Add(gap)
		if limit := p.first.Add(idleMax); limit.Before(at) {
			at = limit
		}
	}
	return at.Sub(now), !now.Before(at)
}

// take writes one chunk.
func (p *pump) take(ctx context.Context, c chunk) error {
	data := c.data
	if p.opts.Mode == FlushLine {
		if i := bytes.LastIndexByte(data, '\n'); i < 0 && len(p.line)+len(data) < lineMax {
			p.line = append(p.line, data...)
			return nil
		} else if i >= 0 {
			head := append(p.line, data[:i+1]...)
			p.line = append([]byte(nil), data[i+1:]...)
			return p.write(ctx, head)
		}
		data = append(p.line, data...)
		p.line = nil
	}
	return p.write(ctx, data)
}

func (p *pump) write(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if _, err := p.dst.WriteContext(ctx, data); err != nil {
		return err
	}
	p.last = time.Now()
	if p.dirty == 0 {
		p.first = p.last
	}
	p.dirty += int64(len(data))
	if p.opts.Mode == FlushBlock {
		return p.tell()
	}
	return nil
}

func (p *pump) flush(ctx context.Context) error {
	if err := p.dst.Flush(ctx); err != nil {
		return err
	}
	p.dirty = 0
	return p.tell()
}

// tell passes the durable length on when it grew.
func (p *pump) tell() error {
	n := p.dst.Durable()
	if p.opts.Durable == nil || n == p.acked {
		return nil
	}
	p.acked = n
	return p.opts.Durable(n)
}

// finish writes the last line, which has no end, and judges the read's error.
func (p *pump) finish(ctx context.Context, readErr error) error {
	if err := p.write(ctx, p.line); err != nil {
		return p.because(ctx, err)
	}
	var own *fserror.Error
	if errors.As(readErr, &own) {
		return readErr
	}
	if !errors.Is(readErr, io.EOF) {
		return &fserror.Error{Op: "read standard input", Kind: fserror.Internal, Err: readErr}
	}
	return nil
}
