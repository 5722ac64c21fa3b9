package blockio

import (
	"sync"

	"github.com/leasefs/leasefs/internal/blockstore"
)

// Buffer is one object's memory.
type Buffer struct{ B []byte }

// pools are those of free buffers: capacity → *sync.Pool of *Buffer.
var pools sync.Map

// NewBuffer takes a buffer for n bytes, of length 0.
func NewBuffer(n int64) *Buffer {
	capacity := roundCapacity(n)
	p, ok := pools.Load(capacity)
	if !ok {
		p, _ = pools.LoadOrStore(capacity, new(sync.Pool))
	}
	if buf, ok := p.(*sync.Pool).Get().(*Buffer); ok {
		buf.B = buf.B[:0]
		return buf
	}
	return &Buffer{B: make([]byte, 0, capacity)}
}

// roundCapacity rounds up to one of few sizes, so that few are pooled: to the
// stored length of a block of 128 KiB, or of the next one of twice or one and a
// half times as much.
func roundCapacity(n int64) int64 {
	for data := int64(2 * blockstore.ChunkSize); ; data *= 2 {
		for _, c := range []int64{blockstore.StoredLength(data), blockstore.StoredLength(data + data/2)} {
			if n <= c {
				return c
			}
		}
	}
}

// Free gives a buffer back: nobody may use it from then on.
func (b *Buffer) Free() {
	if p, ok := pools.Load(int64(cap(b.B))); ok {
		p.(*sync.Pool).Put(b)
	}
}
