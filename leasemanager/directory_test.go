package leasemanager

import (
	"testing"

	"pgregory.net/rapid"
)

// A shard against a plain map, with few hashes so that rows are long.
func TestShard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sh shard
		want := map[uint64]*lease{}
		places := rapid.Uint64Range(1, 70).Draw(t, "places")
		hash := func(n uint64) uint64 { return n*29%places | n%2<<40 }
		put := true
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n := rapid.Uint64Range(0, 60).Draw(t, "id")
				want[n] = &lease{session: sid(n)}
				sh.insert(slot{hash(n), want[n]})
			},
			"remove": func(t *rapid.T) {
				n := rapid.Uint64Range(0, 60).Draw(t, "id")
				delete(want, n)
				id := sid(n)
				sh.remove(&id, hash(n))
			},
			"many": func(*rapid.T) { // grow and shrink
				for n := range uint64(50) {
					id := sid(n)
					if put {
						want[n] = &lease{session: id}
						sh.insert(slot{hash(n), want[n]})
					} else {
						delete(want, n)
						sh.remove(&id, hash(n))
					}
				}
				put = !put
			},
			"": func(t *rapid.T) {
				for n := range uint64(61) {
					id := sid(n)
					if got := sh.find(&id, hash(n)); got != want[n] {
						t.Fatalf("session %d: %p, want %p", n, got, want[n])
					}
				}
				if sh.used != len(want) || 2*sh.used > len(sh.slots) {
					t.Fatalf("%d of %d slots used, want %d", sh.used, len(sh.slots), len(want))
				}
			},
		})
	})
}

// A lease whose last file is closed is not listed while the end of it is still with
// who closed the file.
func TestListedLeasesHaveFiles(t *testing.T) {
	m, c := fresh(t)
	m.Open(client("a", 1), 1, 1)
	c.Advance(hard + 1)
	ends := m.Expire(1)
	if infos, _ := m.List(Filter{}); len(ends) != 1 || len(infos) != 1 || infos[0].Files != 1 {
		t.Fatalf("%d end, %+v", len(ends), infos)
	}
	m.Close(1, 1, "expired", nil)
	if infos, _ := m.List(Filter{}); len(infos) != 0 {
		t.Errorf("listed without a file: %+v", infos)
	}
	m.Ended(ends[0].LeaseID)
	if err := m.Check(); err != nil {
		t.Error(err)
	}
}
