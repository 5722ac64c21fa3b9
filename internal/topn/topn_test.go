package topn

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestFirst(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for n := range 50 {
		for count := range 60 {
			values := r.Perm(count)
			f := New(n, cmp.Compare[int])
			for _, v := range values {
				f.Add(v)
				if len(f.kept.list) > max(n, 1) {
					t.Fatalf("%d values are kept, not %d", len(f.kept.list), n)
				}
			}
			slices.Sort(values)
			want := values[:min(max(n, 1), count)]
			if got := f.Sorted(); !slices.Equal(got, want) {
				t.Fatalf("the first %d of %d: %v", n, count, got)
			}
		}
	}
}
