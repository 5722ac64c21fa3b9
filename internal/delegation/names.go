package delegation

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	nameBits = 1 << 17
	// NamesBytes is the size of Names in memory.
	NamesBytes = nameBits / 8 // 16 KiB
)

// Names are the names that a directory may have: a Bloom filter, safe for concurrent
// use. It only grows. With 10,000 names in it, it takes one other name in a hundred
// for present.
type Names struct {
	seed maphash.Seed
	bits [nameBits / 64]atomic.Uint64
}

// NewNames returns the filter of an empty directory, which may have snapshots.
func NewNames() *Names {
	n := &Names{seed: maphash.MakeSeed()}
	n.Add(".snapshot")
	return n
}

// Add adds a name; to nil, nothing.
func (n *Names) Add(name string) {
	if n == nil {
		return
	}
	for _, p := range n.places(name) {
		n.bits[p/64].Or(1 << (p % 64))
	}
}

// Has reports whether a name may have been added: false is certain.
func (n *Names) Has(name string) bool {
	for _, p := range n.places(name) {
		if n.bits[p/64].Load()&(1<<(p%64)) == 0 {
			return false
		}
	}
	return true
}

// places are the three bits of a name.
func (n *Names) places(name string) [3]uint64 {
	h := maphash.String(n.seed, name)
	return [3]uint64{h % nameBits, (h >> 20) % nameBits, (h >> 40) % nameBits}
}
