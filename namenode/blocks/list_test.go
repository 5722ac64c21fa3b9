package blocks

import (
	"context"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
)

// pages is a store that counts how often it is asked for what it has.
type pages struct {
	blockstore.Store
	has, asked int
}

func (p *pages) List(_ context.Context, after blockstore.Key, limit int) (infos []blockstore.Info, err error) {
	p.asked++
	for seq := after.Seq + 1; seq <= uint64(p.has) && len(infos) < limit; seq++ {
		infos = append(infos, blockstore.Info{Key: blockstore.Key{Term: 1, Seq: seq}})
	}
	return infos, nil
}

// TestListsInLargePages: a folder reads the names of all its folders each time that it is asked.
func TestListsInLargePages(t *testing.T) {
	store := &pages{has: 3*listPage - 1}
	bs := &Blocks{Config: Config{Store: store}}
	all, err := bs.listStore(t.Context(), blockstore.Key{})
	if err != nil || len(all) != store.has || store.asked != 3 {
		t.Errorf("%d blocks of %d, asked %d times (%v)", len(all), store.has, store.asked, err)
	}
}
