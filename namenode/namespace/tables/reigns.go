package tables

import (
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// MaxReigns is how many reigns a tree knows: the latest ones.
const MaxReigns = 64

// Reign is a reign of this history, as its activation's record tells of it.
type Reign struct {
	Term  uint64
	Nonce [16]byte
	Top   uint64 // the highest sequence number of a block under its term that was committed
}

// NonceText is the nonce in hexadecimal digits.
func (r Reign) NonceText() string { return hex.EncodeToString(r.Nonce[:]) }

// Base is the number above which the reign counts the blocks of its term. It comes from
// the random nonce, so two reigns of one term, in copies of a history, hand out different
// keys. It is at least 2^52, above every number of a reign of a release that counted from
// one, and leaves 2^51 numbers below 2^53, up to which a number in JSON is exact.
func (r Reign) Base() uint64 { return 1<<52 + binary.BigEndian.Uint64(r.Nonce[:])>>13 }

// Reigns are the latest reigns, the present one last.
type Reigns struct {
	past []Reign // replaced, never changed
	Reign
}

// Clone returns a snapshot.
func (t *Reigns) Clone() Reigns { return *t }

// All returns the latest reigns, the oldest first, the present one last.
func (t *Reigns) All() []Reign {
	if t.Term == 0 {
		return nil
	}
	return append(slices.Clone(t.past), t.Reign)
}

// Begin begins a reign.
func (t *Reigns) Begin(term uint64, nonce [16]byte) {
	past := t.All()
	t.past, t.Reign = past[max(0, len(past)+1-MaxReigns):], Reign{Term: term, Nonce: nonce}
}

// Committed notes that a block is part of a file.
func (t *Reigns) Committed(term, seq uint64) {
	if term == t.Term {
		t.Top = max(t.Top, seq)
	}
}

// Code is the layout in an image; Term is that of the present reign.
func (t *Reigns) Code(c *codec.Coder) {
	var all []Reign
	if c.Writes() {
		all = t.All()
	}
	codec.List(c, &all, 18, func(r *Reign) {
		c.U64(&r.Term)
		c.Raw(&r.Nonce)
		c.U64(&r.Top)
	})
	if c.Writes() || !c.OK() {
		return
	}
	last := uint64(0)
	for _, r := range all {
		if r.Term <= last {
			c.Fail("reigns that are not in order")
		}
		last = r.Term
	}
	if len(all) > MaxReigns || last != t.Term {
		c.Fail("too many reigns, or a last reign of another term")
	}
	if n := len(all) - 1; n >= 0 {
		t.past, t.Reign = all[:n:n], all[n]
	}
}
