package namenode_test

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/size"
)

var firstTxID = regexp.MustCompile(` txid=(\d+) `)

// What ZooKeeper holds, in memory and on disk, stays bounded however much is
// written; and a batch goes only when two images are in the block store from
// which a namenode can start without it.
func TestZooKeeperStaysBounded(t *testing.T) {
	t.Parallel()
	const file = 60 << 10
	files := size.Of[int64](200, 500)       // 12 MB in all, or 30
	image := size.Of[int64](400<<10, 1<<20) // bytes of journal that cause one
	inStore := 5 * image
	zk := env.StartZooKeeperWith(t, env.ZooKeeperConfig{Servers: 3, SnapCount: 50})
	p := &pair{t: t, blocks: t.TempDir(), zk: zk}
	small := func(c *namenode.Config) { c.CheckpointBytes = image }
	acfg, _ := p.config(small)
	bcfg, _ := p.config(small)
	a := p.start(acfg)
	p.becomes(a, "active")
	b := p.start(bcfg)
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: zk.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	first := func() uint64 {
		t.Helper()
		if err := s.Sync(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		text, _, err := s.Get(t.Context(), "/leasefs/pair/journal/first")
		m := firstTxID.FindSubmatch(text)
		if err != nil || m == nil {
			t.Fatalf("%q, %v", text, err)
		}
		n, err := strconv.ParseUint(string(m[1]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	images := func() (txids []uint64) {
		_ = filepath.WalkDir(p.blocks, func(path string, _ fs.DirEntry, _ error) error {
			if digits, ok := strings.CutPrefix(filepath.Base(path), "image-"); ok {
				if n, err := strconv.ParseUint(strings.TrimLeft(digits[:min(20, len(digits))], "0"), 10, 64); err == nil {
					txids = append(txids, n)
				}
			}
			return nil
		})
		slices.Sort(txids)
		return txids
	}
	check := func() (begins uint64, most int64) {
		t.Helper()
		begins = first()
		if all := images(); begins > 1 && (len(all) < 2 || begins > all[len(all)-2]+1) {
			t.Errorf("the journal begins at record %d, and the images are of %d", begins, all)
		}
		for i := range 3 {
			most = max(most, zk.Server(i).Stat(t, "zk_approximate_data_size"))
		}
		if most > inStore {
			t.Errorf("ZooKeeper holds %d bytes", most)
		}
		return begins, most
	}

	f := p.client(acfg.Listen, bcfg.Listen)
	work, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer stop()
		for i := range files {
			name := fmt.Sprint("/", i)
			if err := f.WriteFile(t.Context(), name, make([]byte, file)); err != nil {
				t.Error(err)
				return
			}
			if err := f.Remove(t.Context(), name); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var most, disk int64
	for tick := time.Tick(20 * time.Millisecond); work.Err() == nil; <-tick {
		_, held := check()
		most = max(most, held)
	}
	wg.Wait()
	p.eventually("the standby has followed", func() bool { return b.Role() == "standby" })
	begins, held := check()
	for i := range 3 {
		disk = max(disk, zk.Server(i).PurgeDisk(t))
	}
	t.Logf("%d bytes written; at most %d in memory, %d at last; %d on disk; the journal begins at record %d", files*file, most, held, disk, begins)
	if begins < uint64(files) { //nolint:gosec // positive
		t.Errorf("the journal begins at record %d of more than %d", begins, 2*files)
	}
	// Three snapshots of what is in memory, and the logs of some dozen changes
	// since the oldest.
	if disk > files*file*2/3 {
		t.Errorf("a server has %d bytes on disk of %d written", disk, files*file)
	}
	for _, s := range []*namenode.Server{b, a} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
