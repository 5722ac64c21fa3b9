package frames

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
)

// ErrEnded says that the other side has ended a stream.
var ErrEnded = errors.New("frames: the other side has ended the stream")

const (
	ping       = 6
	windowMore = 8
	flagAck    = 0x1

	frameHeader = 9
	prefix      = 5
	windowStart = 1<<16 - 1 // of a connection, in bytes, before it is raised
	window      = 1<<31 - 1 // the largest
	windowStep  = 1 << 20   // how many bytes are read before it is raised again
)

// Client is a client of gRPC that takes a few kilobytes and no goroutine, so that one
// process has room for thousands. It sees no headers, and so not why a stream has ended.
// A stream gets at most 2 GiB. Next is for one goroutine, the other methods for any.
type Client struct {
	c    net.Conn
	in   *bufio.Reader
	read uint32 // bytes of data since the window was raised

	stream uint32            // of what Next reads
	part   []byte            // of it: not yet returned
	parts  map[uint32][]byte // beginnings of messages of other streams

	mu   sync.Mutex // of who sends
	last uint32     // stream
}

// Connect connects to addr, from an address of this machine; empty: any.
func Connect(ctx context.Context, addr, from string) (*Client, error) {
	var d net.Dialer
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	hello := slices.Concat([]byte(preface),
		Encode(settings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, window)),
		Encode(windowMore, 0, 0, binary.BigEndian.AppendUint32(nil, window-windowStart)))
	if _, err := c.Write(hello); err != nil {
		_ = c.Close()
		return nil, err
	}
	return &Client{c: c, in: bufio.NewReaderSize(c, 512), parts: map[uint32][]byte{}}, nil
}

// Close ends the connection, and with it Next.
func (l *Client) Close() error { return l.c.Close() }

// Open begins a call with its first message and returns the number of its stream.
func (l *Client) Open(method string, m proto.Message) (stream uint32, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = (l.last + 1) | 1
	return l.last, l.send(Encode(Headers, flagHeaders, l.last, callHeaders(method)), l.last, m)
}

// Send sends another message of a call. Nil: no more come.
func (l *Client) Send(stream uint32, m proto.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.send(nil, stream, m)
}

func (l *Client) send(before []byte, stream uint32, m proto.Message) error {
	if m == nil {
		return l.write(Encode(Data, FlagEnd, stream, nil))
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return l.write(append(before, Encode(Data, 0, stream, append(Prefix(uint32(len(b))), b...))...)) //nolint:gosec // a frame has 16 KiB
}

func (l *Client) write(b []byte) error {
	_, err := l.c.Write(b)
	return err
}

// Next waits for a message of any stream; it is valid until the next call. The error is
// ErrEnded, of that stream, or that of the connection.
func (l *Client) Next() (stream uint32, message []byte, err error) {
	for {
		if len(l.part) >= prefix {
			if n := prefix + int(binary.BigEndian.Uint32(l.part[1:])); len(l.part) >= n {
				message, l.part = l.part[prefix:n:n], l.part[n:]
				return l.stream, message, nil
			}
		}
		if len(l.part) > 0 {
			l.parts[l.stream], l.part = l.part, nil
		}
		ended, err := l.frame()
		if err != nil {
			return 0, nil, err
		}
		if ended != 0 {
			return ended, nil, ErrEnded
		}
	}
}

// frame reads a frame. What it has of a message is in part then.
func (l *Client) frame() (ended uint32, err error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(l.in, h[:]); err != nil {
		return 0, err
	}
	size := int(binary.BigEndian.Uint32(h[:]) >> 8)
	kind, flags, stream := h[3], h[4], binary.BigEndian.Uint32(h[5:])
	if kind == Data {
		l.stream, l.part = stream, l.parts[stream]
		delete(l.parts, stream)
		old := len(l.part)
		l.part = slices.Grow(l.part, size)[:old+size]
		if _, err := io.ReadFull(l.in, l.part[old:]); err != nil {
			return 0, err
		}
		if l.read += uint32(size); l.read >= windowStep { //nolint:gosec // below 16 MiB
			err = l.reply(Encode(windowMore, 0, 0, binary.BigEndian.AppendUint32(nil, l.read)))
			l.read = 0
		}
		return 0, err
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(l.in, payload); err != nil {
		return 0, err
	}
	switch {
	case kind == settings && flags&flagAck == 0:
		return 0, l.reply(Encode(settings, flagAck, 0, nil))
	case kind == ping && flags&flagAck == 0:
		return 0, l.reply(Encode(ping, flagAck, 0, payload))
	case kind == Reset || kind == Headers && flags&FlagEnd != 0:
		return stream, nil
	}
	return 0, nil
}

func (l *Client) reply(frame []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(frame)
}
