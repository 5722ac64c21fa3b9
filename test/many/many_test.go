package many

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// TestMany is a small part of the benchmarks, without their figures: sessions come back after a kill
// of the namenode, and none has lost its file; and watchers are told of every change, in order.
func TestMany(t *testing.T) {
	t.Parallel()
	const sessions, watchers, changes = 300, 200, 100
	n := startNamenode(t)
	c := newCrowd(t, n, sessions, false)
	c.await()
	n.kill()
	c.back.Store(0)
	n.start()
	c.await()
	if lost := c.lost.Load(); lost > 0 {
		t.Errorf("%d files were lost", lost)
	}

	maker := env.RawAt(t, n.listen, "maker")
	mkdir := func(path string) error {
		_, err := maker.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: maker.CallInTurn(), Caller: maker.Who, At: pb.At(path)})
		return err
	}
	if err := mkdir("/w"); err != nil {
		t.Fatal(err)
	}
	done := watch(t, n, make([]watcher, watchers), changes, func(int) time.Time { return time.Time{} })
	for i := range changes {
		if err := mkdir(fmt.Sprint("/w/", i)); err != nil {
			t.Fatal(err)
		}
	}
	done()
}
