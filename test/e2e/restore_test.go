package e2e_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/s3env"
)

// named makes all namenodes, and restores, use another name for the namespace: as
// if they had another ensemble.
func (e *ensemble) named(name string) *ensemble {
	for _, n := range e.all {
		for i := range n.flags {
			if n.flags[i] == "--namespace" {
				n.flags[i+1] = name
			}
		}
	}
	return e
}

func oneStoreOneNamespace(ctx context.Context, t *testing.T, e *ensemble, server *s3env.Server) {
	e.start(ctx)
	onlyOne(ctx, t, e, server.URL(prefixOf(t)+"/restored"), func() *ensemble { return newEnsemble(t, e.zk, server, 1) })
}

// TestOneFolderOneNamespace is oneStoreOneNamespace with a folder that namenodes
// share.
func TestOneFolderOneNamespace(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	zk := env.LendZooKeeper(t)
	newOne := func() *ensemble { return onFolder(t, zk.Addrs(), "") }
	e := newOne().at("file://" + t.TempDir())
	e.start(ctx)
	onlyOne(ctx, t, e, "file://"+t.TempDir(), newOne)
}

// onFolder prepares a namenode of a namespace whose blocks are in a folder.
func onFolder(t *testing.T, zk []string, blocks string) *ensemble {
	t.Helper()
	e := &ensemble{namenode: &namenode{t: t}, zk: zk}
	n := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--blocks", blocks, "--zookeeper", strings.Join(e.zk, ","), "--namespace", ensembleName, "--session-timeout", "2s", "--delete-after", "1ms")
	e.all, e.listen = append(e.all, n), n.listen
	return e
}

// onlyOne: a backup is restored to two ensembles with one store. The second is
// refused until it takes the store over; then the first one ends, and does not
// start again.
func onlyOne(ctx context.Context, t *testing.T, e *ensemble, blocks string, newOne func() *ensemble) {
	large := strings.Repeat("large ", 400_000)
	e.write(ctx, large, "create", "/large")
	dir := filepath.Join(t.TempDir(), "backup")
	e.backup(ctx, dir)
	e.kill()

	to := func(name string) []string { return []string{"--namespace", name} }
	e.restore(ctx, blocks, append(to("first"), dir)...)
	first := newOne().at(blocks).named("first")
	first.start(ctx)
	first.write(ctx, large, "create", "/mine")
	for _, more := range [][]string{append(to("second"), dir), to("second"), append(to("second"), "--take-over", strings.Repeat("0", 32))} {
		if r := e.tryRestore(ctx, blocks, more...); r.code != 4 || ownerOf(t, r.err) == "" {
			t.Errorf("%q: exit code %d: %s", more, r.code, r.err)
		}
	}
	first.fsck(ctx)
	first.run(ctx, "admin", "checkpoint")

	e.takeOver(ctx, blocks, to("second")...)
	line := first.fails(ctx, 4, "", "admin", "gc")
	ownerOf(t, line)
	n := first.all[0]
	n.ends(ctx, 4)
	all := lines(n.err.String())
	ownerOf(t, all[len(all)-1]+"\n")
	p := n.launch(ctx)
	p.ends(ctx, 4)
	all = lines(p.err.String())
	owner := ownerOf(t, all[len(all)-1]+"\n")

	second := newOne().at(blocks).named("second")
	second.start(ctx)
	for _, path := range []string{"/large", "/mine"} { // /mine is in the image
		if got := second.run(ctx, "cat", path); got != large {
			t.Errorf("%s has %d bytes", path, len(got))
		}
	}
	second.write(ctx, large, "create", "/new")
	second.fsck(ctx)
	second.kill()
	// Back again, on purpose: what is named is what loses the store.
	n.flags = append(n.flags, "--take-over", owner)
	first.start(ctx)
	first.fsck(ctx)
	p = second.all[0].launch(ctx)
	p.ends(ctx, 4)
	if strings.Contains(p.err.String(), "panic") {
		t.Error(p.err.String())
	}
}

// TestRestoreForAUser: a restore is the first to come to ZooKeeper, with a user,
// and to a folder of somebody who is not root. Others can use both.
func TestRestoreForAUser(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	zk := env.StartZooKeeper(t, 1)
	text := strings.Repeat("text ", 300_000)
	e := onFolder(t, zk.Addrs(), "file://"+t.TempDir())
	e.start(ctx)
	e.write(ctx, text, "create", "/f")
	dir := filepath.Join(t.TempDir(), "backup")
	e.backup(ctx, dir)
	e.kill()
	forget(ctx, t, e.zk)

	blocks, owner := t.TempDir(), os.Geteuid()
	if owner == 0 {
		owner = 4711
		if err := os.Chown(blocks, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	mine := onFolder(t, zk.Addrs(), "file://"+blocks)
	mine.all[0].env = []string{"LEASEFS_ZOOKEEPER_AUTH=mine:right"}
	mine.restore(ctx, "file://"+blocks, dir)
	err := filepath.WalkDir(blocks, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err == nil && int(info.Sys().(*syscall.Stat_t).Uid) != owner {
			t.Errorf("%s is not its folder's owner's", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mine.start(ctx)
	if got := mine.run(ctx, "cat", "/f"); got != text {
		t.Errorf("%d bytes", len(got))
	}
	// Somebody else has room beside it, and gets no further.
	other := onFolder(t, zk.Addrs(), "file://"+t.TempDir()).named("other")
	other.all[0].env = []string{"LEASEFS_ZOOKEEPER_AUTH=other:password"}
	other.start(ctx)
	other.write(ctx, text, "create", "/g")
	open := onFolder(t, zk.Addrs(), "file://"+t.TempDir()).named("open")
	open.start(ctx)
	open.write(ctx, text, "create", "/h")
	conn, _, err := zookeeper.Connect(zk.Addrs(), 4*time.Second, zookeeper.WithLogInfo(false), zookeeper.WithLogger(noLog{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for _, node := range []string{"", "/format", "/incarnation"} {
		if _, _, err := conn.Get("/leasefs/" + ensembleName + node); !errors.Is(err, zookeeper.ErrNoAuth) {
			t.Errorf("a stranger reads %s: %v", node, err)
		}
	}
	// A name that is another user's is refused in words.
	const theirs = "/leasefs/theirs"
	if _, err := conn.Create(theirs, nil, 0, zookeeper.DigestACL(zookeeper.PermAll, "they", "secret")); err != nil {
		t.Fatal(err)
	}
	mine.cannotRestore(ctx, 8, "file://"+t.TempDir(), []string{"--namespace", "theirs", dir}, theirs, "belongs to another user", "--zookeeper-auth")
}
