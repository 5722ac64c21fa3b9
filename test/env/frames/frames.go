// Package frames speaks HTTP/2 by hand, for tests that send what no client would.
package frames

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// Conn is a connection. What the other side says is read and thrown away.
type Conn struct{ net.Conn }

// The kinds of frames, and the flag of the last one of a stream.
const (
	Data        = 0
	Headers     = 1
	Reset       = 3
	settings    = 4
	FlagEnd     = 0x1
	flagHeaders = 0x4 // they end with this frame
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Dial connects and introduces itself.
func Dial(t testing.TB, addr string) *Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() { _, _ = io.Copy(io.Discard, c) }() // until it ends
	f := &Conn{c}
	if _, err := io.WriteString(c, preface); err != nil {
		t.Fatal(err)
	}
	if err := f.Send(settings, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	return f
}

// Encode returns the bytes of a frame.
func Encode(kind, flags byte, stream uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind)) //nolint:gosec // below 16 MiB
	b = append(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// Send sends a frame.
func (f *Conn) Send(kind, flags byte, stream uint32, payload []byte) error {
	_, err := f.Write(Encode(kind, flags, stream, payload))
	return err
}

// Call begins a call of gRPC. Its number is odd and above those before.
func (f *Conn) Call(stream uint32, method string) error {
	return f.Send(Headers, flagHeaders, stream, callHeaders(method))
}

func callHeaders(method string) []byte {
	var b []byte
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		b = append(b, 0, byte(len(h[0])))
		b = append(append(b, h[0]...), byte(len(h[1]))) // shorter than 127, so not continued
		b = append(b, h[1]...)
	}
	return b
}

// Prefix is what stands before a message of that length.
func Prefix(length uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0}, length) }
