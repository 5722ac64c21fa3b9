package e2e_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/testenv"
	"github.com/leasefs/leasefs/testenv/s3env"
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
	zk := testenv.StartZooKeeper(t, 1)
	newOne := func() *ensemble {
		e := &ensemble{namenode: &namenode{t: t}, zk: zk.Addrs()}
		n := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--blocks", "", "--zookeeper", strings.Join(e.zk, ","), "--namespace", ensembleName, "--session-timeout", "2s")
		e.all, e.listen = append(e.all, n), n.listen
		return e
	}
	e := newOne().at("file://" + t.TempDir())
	e.start(ctx)
	onlyOne(ctx, t, e, "file://"+t.TempDir(), newOne)
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
