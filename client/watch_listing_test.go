package client_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/client"
)

// A listing, and a watch that begins with the change after it, miss nothing,
// though names come and go while the listing is made, and before the watch begins.
func TestWatchFromAListing(t *testing.T) {
	t.Parallel()
	f := serve(t)
	ctx := t.Context()
	kinds := map[string]func(dir string) (txid uint64, names []string){
		"pages": func(dir string) (txid uint64, names []string) {
			for after, more := "", true; more; {
				var entries []*client.FileInfo
				var err error
				entries, more, err = f.List(ctx, dir, after, 7)
				must(t, err)
				if txid == 0 {
					txid = entries[0].TxID
				}
				for _, e := range entries {
					after = e.Name()
					names = append(names, after)
				}
			}
			return txid, names
		},
		"find": func(dir string) (txid uint64, names []string) {
			for i, err := range f.Find(ctx, dir, client.FindOptions{}) {
				must(t, err)
				if txid = i.TxID; i.Path != dir {
					names = append(names, i.Name())
				}
			}
			return txid, names
		},
		"stat": func(dir string) (txid uint64, names []string) {
			info, err := f.Stat(ctx, dir)
			must(t, err)
			all, err := f.ReadDir(ctx, dir)
			must(t, err)
			for _, i := range all {
				names = append(names, i.Name())
			}
			return info.TxID, names
		},
	}
	for kind, list := range kinds {
		t.Run(kind, func(t *testing.T) {
			dir := "/" + kind
			must(t, f.Mkdir(ctx, dir, 0o755))
			for i := range 200 {
				must(t, f.WriteFile(ctx, fmt.Sprintf("%s/%03d", dir, i), nil))
			}
			for round := range uint64(10) {
				listed, changed := make(chan struct{}), make(chan error, 1)
				began := make(chan struct{})
				go func() { changed <- comeAndGo(t, f, dir, round, began, listed) }()
				<-began
				txid, names := list(dir)
				close(listed)
				must(t, <-changed)
				now := map[string]bool{}
				for _, n := range names {
					now[n] = true
				}
				end := fmt.Sprintf("end%d", round)
				must(t, f.Mkdir(ctx, dir+"/"+end, 0o755))
				w, err := f.Watch(ctx, dir, client.WatchOptions{From: txid + 1})
				must(t, err)
				for !now[end] {
					events, err := w.Next()
					must(t, err)
					for _, e := range events {
						switch e.Type {
						case client.EventCreate:
							now[path.Base(e.Path)] = true
						case client.EventDelete:
							delete(now, path.Base(e.Path))
						case client.EventRename:
							delete(now, path.Base(e.Path))
							now[path.Base(e.NewPath)] = true
						}
					}
				}
				w.Close()
				all, err := f.ReadDir(ctx, dir)
				must(t, err)
				var want []string
				for _, i := range all {
					want = append(want, i.Name())
				}
				if got := slices.Sorted(maps.Keys(now)); !slices.Equal(got, want) {
					t.Fatalf("round %d, from %d on:\n%v\nis\n%v", round, txid+1, got, want)
				}
			}
		})
	}
}

// comeAndGo makes, removes and renames files of a directory until listed is
// closed and for a while after it. began is closed after the first change.
func comeAndGo(t *testing.T, f *client.FS, dir string, seed uint64, began chan<- struct{}, listed <-chan struct{}) error {
	ctx := t.Context()
	rnd := rand.New(rand.NewPCG(seed, 2))
	name := func() string { return fmt.Sprintf("%s/%03d", dir, rnd.IntN(300)) }
	after := 0
	for n := 0; after < 20; n++ {
		switch rnd.IntN(3) {
		case 0:
			_ = f.WriteFile(ctx, name(), nil) // it may exist
		case 1:
			_ = f.Remove(ctx, name()) // it may not
		case 2:
			_ = f.Rename(ctx, name(), name(), true)
		}
		if n == 0 {
			close(began)
		}
		select {
		case <-listed:
			after++
		default:
		}
	}
	return ctx.Err()
}
