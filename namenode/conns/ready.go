package conns

import (
	"errors"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// ready is a meter around a TCP connection whose reader takes a buffer only when there is
// something to read: a connection on which nothing happens has none. gRPC looks for
// ReadOnReady (its package internal/transport/readyreader says what it has to do).
type ready struct {
	*meter
	raw syscall.RawConn

	// Of the ReadOnReady under way, here so that it needs no memory of its own.
	read func(fd uintptr) bool
	size int
	pool mem.BufferPool
	buf  *[]byte
	n    int
	err  error
}

// newReady returns nil if conn is none that can tell when there is something to read.
func newReady(m *meter, conn net.Conn) *ready {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	r := &ready{meter: m, raw: raw}
	r.read = r.try
	return r
}

// try reads what there is; false: nothing.
func (r *ready) try(fd uintptr) bool {
	r.buf = r.pool.Get(r.size)
	for {
		r.n, r.err = syscall.Read(int(fd), *r.buf) //nolint:gosec // a descriptor
		if !errors.Is(r.err, syscall.EINTR) {
			break
		}
	}
	if r.err != nil {
		r.pool.Put(r.buf)
		r.buf = nil
	}
	return !errors.Is(r.err, syscall.EAGAIN)
}

// ReadOnReady waits until there is something to read and then reads it into a buffer of
// that many bytes, of the pool, to which the caller returns it. It is for one goroutine, as Read.
func (r *ready) ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	r.size, r.pool = size, pool
	closed := r.raw.Read(r.read)
	buf, n, err = r.buf, r.n, r.err
	r.pool, r.buf, r.n, r.err = nil, nil, 0, nil
	switch {
	case closed != nil: // or its deadline is over
		err = closed
	case err == nil && n == 0:
		err = io.EOF
	}
	if err != nil {
		if buf != nil {
			pool.Put(buf)
		}
		return nil, 0, err
	}
	r.came((*buf)[:n])
	return buf, n, nil
}
