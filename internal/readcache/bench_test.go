package readcache

import (
	"fmt"
	"testing"

	"github.com/leasefs/leasefs/internal/clock"
)

type request struct {
	path  string
	flags uint32
}

func full(b *testing.B) (*Cache[request, *int], []request) {
	b.Helper()
	c := New(Config[request, *int]{Clock: clock.System{}})
	c.Connected()
	c.Extend(c.Now(), 1<<40)
	reqs := make([]request, DefaultMaxEntries)
	for i := range reqs {
		reqs[i] = request{fmt.Sprintf("/home/someone/project/data/%d/part-%05d", i%100, i), 1}
		store(b, c, reqs[i], uint64(i))
	}
	return c, reqs
}

func store(b *testing.B, c *Cache[request, *int], r request, inode uint64) {
	b.Helper()
	dir := 1000 + inode%100
	deps := [...]Key{
		{2, 1, "home"}, {1, 2, ""}, {2, 2, "someone"}, {1, 3, ""}, {2, 3, "project"}, {1, 4, ""}, {2, 4, "data"}, {1, 5, ""},
		{2, 5, "dir"}, {1, dir, ""}, {2, dir, r.path[len(r.path)-10:]}, {1, 1 << 20 * inode, ""},
	}
	if !c.Put(c.Ticket(), r, nil, deps[:]) {
		b.Fatal("not stored")
	}
}

// BenchmarkGet is a stat that is polled: one path, all paths in turn, from all
// processors, and one that is not there.
func BenchmarkGet(b *testing.B) {
	c, reqs := full(b)
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := c.Get(reqs[7]); !ok {
				b.Fatal("missed")
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, ok := c.Get(reqs[i%len(reqs)]); !ok {
				b.Fatal("missed")
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				c.Get(reqs[i%len(reqs)])
			}
		})
	})
	b.Run("missing", func(b *testing.B) {
		for b.Loop() {
			c.Get(request{"/home/someone/nothing", 1})
		}
	})
}

// BenchmarkNow is what of a hit are the clocks.
func BenchmarkNow(b *testing.B) {
	c, _ := full(b)
	for b.Loop() {
		c.Now()
	}
}

// BenchmarkPut is an entry with 12 keys that takes the place of another.
func BenchmarkPut(b *testing.B) {
	c, reqs := full(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		store(b, c, reqs[i%len(reqs)], uint64(i%len(reqs)))
	}
}

// BenchmarkRevoke revokes one key of one entry and puts the entry back.
func BenchmarkRevoke(b *testing.B) {
	c, reqs := full(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n := i % len(reqs)
		c.Revoke([]Key{{1, 1 << 20 * uint64(n), ""}}, false)
		store(b, c, reqs[n], uint64(n))
	}
}
