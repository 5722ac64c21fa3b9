package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/s3env"
)

// killedArchiving writes file after file, and kills -9 the active namenode of them meanwhile,
// once some of the files are archived. Of the files, /w/0 and following, that many must
// be in the archive: those acknowledged longer ago than its lag.
func killedArchiving(ctx context.Context, t *testing.T, n *namenode, kill func()) (must int) {
	t.Helper()
	const least = 20
	fs := n.client(ctx)
	if err := fs.Mkdir(ctx, "/w", 0o755); err != nil {
		t.Fatal(err)
	}
	acks := make(chan time.Time, 100_000)
	writing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; fs.WriteFile(writing, fmt.Sprintf("/w/%d", i), written(i)) == nil; i++ {
			acks <- time.Now()
		}
	}()
	defer func() { stop(); <-done }()
	var acked []time.Time
	eventually(ctx, t, "files are archived", func() bool {
		asked := time.Now()
		list, err := client.QueryStatus(ctx, client.Config{Namenodes: []string{n.listen}})
		if err != nil || list[0].Archive == nil {
			return false
		}
		for len(acks) > 0 {
			acked = append(acked, <-acks)
		}
		if a := list[0].Archive; a.TxID > 0 {
			for must < len(acked) && acked[must].Before(asked.Add(-a.Lag)) {
				must++
			}
		}
		return must >= least
	})
	kill()
	return must
}

// written is what the file of that number holds: some have a block.
func written(i int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("file %d ", i), 1+i%3*20_000))
}

// hasWritten makes sure that the first files are there, and of those behind them all up to some.
func hasWritten(ctx context.Context, t *testing.T, n *namenode, must int) {
	t.Helper()
	fs := n.client(ctx)
	last := 0
	for i := 0; ; i++ {
		got, err := fs.ReadFile(ctx, fmt.Sprintf("/w/%d", i))
		if errors.Is(err, fserror.NotFound) {
			last = i
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		want := string(written(i))
		if string(got) != want && (i < must || !strings.HasPrefix(want, string(got))) { // what was not acknowledged may be cut
			t.Fatalf("/w/%d has %d bytes, not %d", i, len(got), len(want))
		}
	}
	if last < must {
		t.Errorf("only %d files are there, of %d that are archived", last, must)
	}
	t.Logf("%d files were archived for sure, %d are there", must, last)
	n.fsck(ctx)
	n.run(ctx, "mkdir", "/after")
}

// lastOwner is the incarnation that the last line of a namenode that was refused names.
func lastOwner(ctx context.Context, t *testing.T, n *namenode) string {
	t.Helper()
	p := n.launch(ctx)
	p.ends(ctx, 4)
	all := lines(p.err.String())
	return ownerOf(t, all[len(all)-1]+"\n")
}

// lost removes a namenode's folder, and restores the newest moment of its archive, with the
// credentials that it had.
func (n *namenode) lost(ctx context.Context, args ...string) (told string) {
	n.t.Helper()
	if err := os.RemoveAll(n.data); err != nil {
		n.t.Fatal(err)
	}
	p := start(ctx, n.t, spec{argv: append([]string{leasefs, "admin", "restore", "--at", "newest", "--blocks", flagOf(n.t, n.flags, "--blocks")}, args...), env: n.env, stdin: reader("")})
	if code := p.wait(ctx); code != 0 {
		n.t.Fatalf("restore: exit code %d: %s", code, p.err.String())
	}
	return p.out.String()
}

// s3ArchiveOutlivesTheDisk is TestArchiveOutlivesTheDisk with a bucket, and what is restored has
// its blocks with it: it needs the bucket no more.
func s3ArchiveOutlivesTheDisk(ctx context.Context, t *testing.T, server *s3env.Server) {
	n := onS3(t, server, server.URL(prefixOf(t)))
	n.flags = append(n.flags, "--archive", "1h")
	n.start(ctx)
	must, dir := killedArchiving(ctx, t, n, n.kill), filepath.Join(t.TempDir(), "again")
	n.lost(ctx, dir)
	again := newNamenode(t, dir)
	again.start(ctx)
	hasWritten(ctx, t, again, must)
}

// TestArchiveOutlivesTheDisk: a namenode alone is killed while it writes, its folder is lost,
// and what it acknowledged longer ago than the lag of its archive comes back from there.
func TestArchiveOutlivesTheDisk(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	blocks := "file://" + t.TempDir()
	n := startNamenode(ctx, t, "--blocks", blocks, "--archive", "1h")
	must, dir := killedArchiving(ctx, t, n, n.kill), filepath.Join(t.TempDir(), "again")
	told := n.lost(ctx, "--tree-only", dir)
	if !regexp.MustCompile(`: txid \d+ of \d{4}-.* \(the newest that is archived is \d+\), \d+ files, `).MatchString(told) {
		t.Errorf("it prints %q", told)
	}
	again := newNamenode(t, dir, "--blocks", blocks, "--archive", "1h")
	again.flags = append(again.flags, "--take-over", lastOwner(ctx, t, again))
	again.start(ctx)
	hasWritten(ctx, t, again, must)

	// One file, as a plain one.
	file := filepath.Join(t.TempDir(), "file")
	again.run(ctx, "admin", "restore", "--at", "newest", "--path", "/w/2", "--blocks", blocks, file)
	if got, err := os.ReadFile(file); err != nil || string(got) != string(written(2)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}

	// What is not kept is refused, with what is.
	for at, says := range map[string]string{"9999999": "the newest that can be had is", "2001-01-01T00:00:00Z": "is not kept; available: records", "2999-01-01T00:00:00Z": "has not come yet", "tomorrow": "is no moment"} {
		r := again.try(ctx, "", "admin", "restore", "--at", at, "--blocks", blocks, filepath.Join(t.TempDir(), "none"))
		if r.code == 0 || !strings.Contains(r.err, says) {
			t.Errorf("--at %s: exit code %d: %s", at, r.code, r.err)
		}
		oneLine(t, r.err)
	}
}

// TestArchiveOutlivesZooKeeper: the same, of several namenodes whose ZooKeeper is lost.
func TestArchiveOutlivesZooKeeper(t *testing.T) {
	t.Parallel()
	zk := env.LendZooKeeper(t)
	ctx := deadline(t, 4*time.Minute)
	blocks := "file://" + t.TempDir()
	zooKeeperLost(ctx, t, onFolder(t, zk.Addrs(), blocks), blocks)
}

// archiveOnS3 is TestArchiveOutlivesZooKeeper with a bucket.
func archiveOnS3(ctx context.Context, t *testing.T, e *ensemble, server *s3env.Server) {
	zooKeeperLost(ctx, t, e, server.URL(prefixOf(t)))
}

func zooKeeperLost(ctx context.Context, t *testing.T, e *ensemble, blocks string) {
	for _, n := range e.all {
		n.flags = append(n.flags, "--archive", "1h")
	}
	e.start(ctx)
	must := killedArchiving(ctx, t, e.active(ctx), e.kill)
	forget(ctx, t, e.zk)
	for _, n := range e.all {
		if err := os.RemoveAll(n.data); err != nil {
			t.Fatal(err)
		}
	}
	e.takeOver(ctx, blocks)
	for _, n := range e.all {
		n.start(ctx)
	}
	hasWritten(ctx, t, e.active(ctx), must)
}
