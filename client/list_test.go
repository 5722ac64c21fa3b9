package client_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

// A listing in pages survives changes between them: each name that is there all
// the time comes once, in order, whatever is added, removed and renamed before,
// after and at the cursor; none comes twice, and none that never was.
func TestListingSurvivesChanges(t *testing.T) {
	t.Parallel()
	f := serve(t)
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ctx := t.Context()
			rnd := rand.New(rand.NewPCG(seed, 1))
			dir := fmt.Sprintf("/d%d", seed)
			must(t, f.MkdirAll(ctx, dir, 0o755))
			now, ever := map[string]bool{}, map[string]bool{}
			add := func(name string) {
				if now[name] {
					return
				}
				must(t, f.WriteFile(ctx, dir+"/"+name, nil))
				now[name], ever[name] = true, true
			}
			fresh := func() string { return fmt.Sprintf("%04d", rnd.IntN(2000)) }
			for range 300 {
				add(fresh())
			}
			always := maps.Clone(now)
			remove := func(name string) {
				if !now[name] {
					return
				}
				must(t, f.Remove(ctx, dir+"/"+name))
				delete(now, name)
				delete(always, name)
			}
			var seen []string
			for after, more := "", true; more; {
				entries, m, err := f.List(ctx, dir, after, 1+rnd.IntN(20))
				must(t, err)
				for _, e := range entries {
					if e.Name() <= after {
						t.Fatalf("%s after %s", e.Name(), after)
					}
					after = e.Name()
					seen = append(seen, after)
				}
				more = m
				names := slices.Sorted(maps.Keys(now))
				for range rnd.IntN(8) {
					switch name := names[rnd.IntN(len(names))]; rnd.IntN(5) {
					case 0:
						remove(after) // the cursor itself
					case 1:
						remove(name)
					case 2, 3:
						add(fresh())
					case 4:
						to := fresh()
						if !now[name] || now[to] {
							continue
						}
						must(t, f.Rename(ctx, dir+"/"+name, dir+"/"+to, false))
						delete(now, name)
						delete(always, name)
						now[to], ever[to] = true, true
					}
				}
			}
			if !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(seen) {
				t.Errorf("not in order, or twice: %v", seen)
			}
			for name := range always {
				if !slices.Contains(seen, name) {
					t.Errorf("%s was there all the time and was not listed", name)
				}
			}
			for _, name := range seen {
				if !ever[name] {
					t.Errorf("%s never was", name)
				}
			}
			// A cursor is a name, not a place: one that was never there does too.
			entries, _, err := f.List(ctx, dir, "~", 5)
			if err != nil || len(entries) != 0 {
				t.Errorf("after the last: %v, %v", entries, err)
			}
			must(t, f.RemoveAll(ctx, dir))
			if _, _, err := f.List(ctx, dir, "0500", 5); !errors.Is(err, fserror.NotFound) {
				t.Errorf("of a directory that is gone: %v", err)
			}
		})
	}
}
