package readlease

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/internal/clock"
)

// crowd returns a table with so many sessions; each holds the root and what is
// its own.
func crowd(b *testing.B, sessions, own int) (*Table, []SessionID) {
	b.Helper()
	tab := New(Config{Clock: new(clock.Fake)})
	ids := make([]SessionID, sessions)
	for i := range ids {
		binary.LittleEndian.PutUint64(ids[i][:], uint64(i+1))
		id := ids[i]
		tab.Connect(id, string(id[:]), 1, func(Revocation) {})
		renewOn(tab, id)
		tab.Grant(id, []Key{{1, 1, ""}})
		for j := range own {
			tab.Grant(id, []Key{{1, uint64(1<<32 + i*own + j), ""}})
		}
	}
	return tab, ids
}

// path is what an answer to a stat of a file in the fourth folder depends on.
func path(file uint64) []Key {
	return []Key{{2, 1, "home"}, {1, 2, ""}, {2, 2, "someone"}, {1, 3, ""}, {2, 3, "project"}, {1, 4, ""}, {2, 4, "data"}, {1, 5, ""}, {1, file, ""}}
}

// BenchmarkGrant is an answer with nine keys: all held already, and the last one
// new (and revoked again).
func BenchmarkGrant(b *testing.B) {
	tab, ids := crowd(b, 1000, 10)
	for _, id := range ids {
		tab.Grant(id, path(77))
	}
	b.Run("held", func(b *testing.B) {
		keys := path(77)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if !tab.Grant(ids[i%len(ids)], keys) {
				b.Fatal("refused")
			}
		}
	})
	b.Run("held/parallel", func(b *testing.B) {
		var worker atomic.Uint64
		b.RunParallel(func(pb *testing.PB) {
			keys := path(77)
			for i := worker.Add(1) * 317; pb.Next(); i++ {
				tab.Grant(ids[i%uint64(len(ids))], keys)
			}
		})
	})
	b.Run("new+revoked", func(b *testing.B) {
		b.ReportAllocs()
		keys := path(0)
		for i := uint64(1 << 40); b.Loop(); i++ {
			keys[len(keys)-1].Inode = i
			id := ids[i%uint64(len(ids))]
			if !tab.Grant(id, keys) {
				b.Fatal("refused")
			}
			c := tab.Revoke(keys[len(keys)-1:])
			c.Done()
			tab.Ack(id, math.MaxUint64)
		}
	})
}

// BenchmarkRevoke is what a change costs that nobody has to be told of.
func BenchmarkRevoke(b *testing.B) {
	for _, sessions := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			tab, _ := crowd(b, sessions, 100)
			b.ReportAllocs()
			for i := uint64(1 << 40); b.Loop(); i++ {
				c := tab.Revoke([]Key{{1, i, ""}, {1, 7, ""}, {2, 7, "name"}})
				if c.Pending() {
					b.Fatal("pending")
				}
				c.Done()
			}
		})
	}
}

// BenchmarkRevokeHot is a change of what all 1,000 sessions hold, with all their
// acknowledgements, and the grants that follow.
func BenchmarkRevokeHot(b *testing.B) {
	tab, ids := crowd(b, 1000, 100)
	root := []Key{{1, 1, ""}}
	for b.Loop() {
		c := tab.Revoke(root)
		seq := tab.seq.Load()
		for _, id := range ids {
			tab.Ack(id, seq)
		}
		if c.Pending() {
			b.Fatal("pending")
		}
		c.Done()
		for _, id := range ids {
			tab.Grant(id, root)
		}
	}
}

func BenchmarkRenew(b *testing.B) {
	tab, ids := crowd(b, 1000, 100)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if renewOn(tab, ids[i%len(ids)]) == 0 {
			b.Fatal("refused")
		}
	}
}
