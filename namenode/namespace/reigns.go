package namespace

import (
	"encoding/hex"
	"slices"
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

func (r *Reign) fields(c coder) {
	c.U64(&r.Term)
	c.id16(&r.Nonce)
	c.U64(&r.Top)
}

// Reigns returns the latest reigns, the oldest first; the last one is that of Term.
func (t *Tree) Reigns() []Reign {
	if t.term == 0 {
		return nil
	}
	return append(slices.Clone(t.reigns), Reign{t.term, t.nonce, t.topSeq})
}
