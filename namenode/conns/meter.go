package conns

import (
	"encoding/binary"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// Creds returns inner with a meter around each connection that was accepted by
// a Listener of the table, inside of what encrypts it.
func (t *Table) Creds(inner credentials.TransportCredentials) credentials.TransportCredentials {
	return metered{inner}
}

type metered struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (m metered) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := m.TransportCredentials.ServerHandshake(raw)
	c, ok := raw.(*Conn)
	if !ok || err != nil {
		return secure, info, err
	}
	counted := &meter{Conn: secure, c: c, streams: map[uint32]*stream{}, in: cutter{skip: len(preface)}}
	if secure == raw { // under TLS gRPC keeps a buffer of its own, and the meter sees what was decrypted
		if r := newReady(counted, c.Conn); r != nil {
			return r, info, nil
		}
	}
	return counted, info, nil
}

// Clone implements credentials.TransportCredentials.
func (m metered) Clone() credentials.TransportCredentials {
	return metered{m.TransportCredentials.Clone()}
}

// What this package knows of HTTP/2 (RFC 9113) and of gRPC over it.
const (
	preface      = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHeader  = 9
	frameData    = 0
	frameHeaders = 1
	frameReset   = 3
	flagEnd      = 0x1
	flagPadded   = 0x8

	messagePrefix = 5 // a flag, and the length in four bytes

	// frameCost is what a frame of data takes in memory besides its bytes.
	frameCost = 128
)

// meter follows the frames on a connection.
type meter struct {
	net.Conn // what bytes go through
	c        *Conn

	mu      sync.Mutex
	in, out cutter
	streams map[uint32]*stream // those that are open
	last    uint32             // the largest that was opened
	delta   int64              // of the bytes of incomplete messages
}

// stream is one call.
type stream struct {
	prefix [messagePrefix]byte
	have   int   // bytes of the prefix
	left   int64 // bytes of the message that are to come
	held   int64 // what its incomplete message takes
	began  bool  // a message was complete: the request is under way
	pad    int64 // bytes at the end of this frame that are no data
	padded bool  // the next byte is the length of the padding
}

// Read implements net.Conn.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	m.came(p[:n])
	return n, err
}

// came takes what was read.
func (m *meter) came(p []byte) {
	m.mu.Lock()
	m.in.feed(p, m.arrives, m.data)
	m.settle()
}

// Write implements net.Conn.
func (m *meter) Write(p []byte) (int, error) {
	n, err := m.Conn.Write(p)
	m.mu.Lock()
	m.out.feed(p[:n], m.leaves, nil)
	m.settle()
	return n, err
}

// settle tells the table what changed, and frees the lock.
func (m *meter) settle() {
	delta := m.delta
	m.delta = 0
	m.mu.Unlock()
	if delta != 0 {
		m.c.count(unfinished, delta)
	}
}

// arrives looks at the header of a frame of the client.
func (m *meter) arrives(f *cutter) {
	switch f.kind {
	case frameHeaders:
		if f.stream > m.last { // else trailers
			m.last = f.stream
			m.streams[f.stream] = &stream{}
		}
	case frameReset:
		m.drop(f.stream)
	case frameData:
		if s := m.streams[f.stream]; s != nil {
			s.padded, s.pad = f.flags&flagPadded != 0, 0
			if f.left > 0 {
				m.hold(s, frameCost)
			}
		}
	}
}

// leaves looks at the header of a frame of the server.
func (m *meter) leaves(f *cutter) {
	if f.kind == frameReset || f.flags&flagEnd != 0 && (f.kind == frameHeaders || f.kind == frameData) {
		m.drop(f.stream)
	}
}

// data takes bytes of a frame of data; left are those of the frame behind them.
func (m *meter) data(id uint32, p []byte, left int) {
	s := m.streams[id]
	if s == nil {
		return
	}
	if s.padded && len(p) > 0 {
		s.padded, s.pad, p = false, int64(p[0]), p[1:]
	}
	p = p[:min(int64(len(p)), max(int64(len(p)+left)-s.pad, 0))]
	for len(p) > 0 {
		if s.have < messagePrefix {
			n := copy(s.prefix[s.have:], p)
			s.have += n
			p = p[n:]
			m.hold(s, int64(n))
			if s.have == messagePrefix {
				s.left = int64(binary.BigEndian.Uint32(s.prefix[1:]))
			}
		} else {
			n := min(int64(len(p)), s.left)
			s.left -= n
			p = p[n:]
			m.hold(s, n)
		}
		if s.have == messagePrefix && s.left == 0 {
			m.hold(s, -s.held)
			s.have = 0
			if !s.began {
				s.began = true
				m.c.MarkBusy()
			}
		}
	}
}

func (m *meter) hold(s *stream, n int64) {
	s.held += n
	m.delta += n
}

// drop forgets a stream that has ended.
func (m *meter) drop(id uint32) {
	s := m.streams[id]
	if s == nil {
		return
	}
	delete(m.streams, id)
	m.hold(s, -s.held)
	if s.began {
		m.c.MarkIdle()
	}
}

// cutter cuts what goes in one direction into frames.
type cutter struct {
	skip   int // bytes before the first frame
	header [frameHeader]byte
	have   int // bytes of the header

	kind, flags byte
	stream      uint32
	left        int // bytes of the payload that are to come
}

// feed calls begin with the header of each frame, and data with the bytes of
// those that are data.
func (f *cutter) feed(p []byte, begin func(*cutter), data func(stream uint32, p []byte, left int)) {
	n := min(f.skip, len(p))
	f.skip -= n
	p = p[n:]
	for len(p) > 0 {
		if f.have < frameHeader {
			n := copy(f.header[f.have:], p)
			f.have += n
			p = p[n:]
			if f.have < frameHeader {
				return
			}
			h := &f.header
			f.left = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
			f.kind, f.flags = h[3], h[4]
			f.stream = binary.BigEndian.Uint32(h[5:]) &^ (1 << 31)
			begin(f)
		}
		n := min(f.left, len(p))
		f.left -= n
		if f.kind == frameData && data != nil {
			data(f.stream, p[:n], f.left)
		}
		p = p[n:]
		if f.left == 0 {
			f.have = 0
		}
	}
}
