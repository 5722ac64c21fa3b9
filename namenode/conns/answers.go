package conns

import (
	"net"
	"runtime"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // what Codec encodes with
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// answer is a message to the client of a connection.
type answer struct {
	proto.Message
	c *Conn
}

// To returns a message that a [Codec] encodes as m and counts until gRPC has written all of it,
// or has given it up, among the bytes that the client at addr has not taken. If addr is not that of a
// connection of a Listener, it returns m. It may be called by several goroutines at once.
func To(addr net.Addr, m any) any {
	from, ok := addr.(*known)
	if !ok {
		return m
	}
	msg, ok := m.(proto.Message)
	if !ok {
		return m
	}
	return &answer{msg, from.c}
}

// Codec returns gRPC's codec for protocol buffers, which also encodes what To returns.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

const (
	// leastKept is the size of the smallest buffer that gRPC gives back, in bytes.
	leastKept = 1<<10 + 1
	// mostPooled is the size of the largest buffer that is not made to measure, in bytes: the
	// next one of the pool has 1 MiB.
	mostPooled = 32 << 10
)

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	a, ok := v.(*answer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := proto.Size(a.Message)
	pool := &kept{c: a.c}
	buf := pool.Get(max(size, leastKept))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buf)[:0], a.Message)
	if err != nil {
		pool.Put(buf)
		return nil, err
	}
	*buf = b
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// kept is where the buffer of a message to a client comes from, and goes when it was sent.
type kept struct {
	c    *Conn
	lost runtime.Cleanup // gRPC drops buffers, and with them this, of a stream that has ended
}

// Get implements mem.BufferPool.
func (k *kept) Get(size int) (buf *[]byte) {
	if size > mostPooled {
		b := make([]byte, size)
		buf = &b
	} else {
		buf = mem.DefaultBufferPool().Get(size)
	}
	n := int64(cap(*buf))
	k.c.count(unsent, n)
	k.lost = runtime.AddCleanup(k, func(c *Conn) { c.count(unsent, -n) }, k.c)
	return buf
}

// Put implements mem.BufferPool.
func (k *kept) Put(buf *[]byte) {
	k.lost.Stop()
	k.c.count(unsent, -int64(cap(*buf)))
	if cap(*buf) <= mostPooled {
		mem.DefaultBufferPool().Put(buf)
	}
}
