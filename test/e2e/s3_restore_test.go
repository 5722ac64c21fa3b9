package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env/s3env"
)

// tryRestore runs admin restore, with the credentials of a namenode.
func (e *ensemble) tryRestore(ctx context.Context, blocks string, more ...string) result {
	e.t.Helper()
	p := start(ctx, e.t, spec{
		argv: append([]string{leasefs, "admin", "restore", "--zookeeper", strings.Join(e.zk, ","), "--namespace", ensembleName, "--blocks", blocks, "--session-timeout", "10s"}, more...),
		env:  e.all[0].env, stdin: reader(""),
	})
	code := p.wait(ctx)
	return result{code, p.out.String(), p.err.String()}
}

// restore is one that must succeed.
func (e *ensemble) restore(ctx context.Context, blocks string, more ...string) string {
	e.t.Helper()
	r := e.tryRestore(ctx, blocks, more...)
	if r.code != 0 {
		e.t.Fatalf("restore: exit code %d: %s", r.code, r.err)
	}
	return r.out
}

// cannotRestore is one that must fail with that code and one line.
func (e *ensemble) cannotRestore(ctx context.Context, code int, blocks string, more []string, says ...string) {
	e.t.Helper()
	r := e.tryRestore(ctx, blocks, more...)
	if r.code != code {
		e.t.Errorf("restore: exit code %d, want %d: %s", r.code, code, r.err)
	}
	oneLine(e.t, r.err)
	names(e.t, r.err, says...)
}

var incarnations = regexp.MustCompile(`belongs to incarnation ([0-9a-f]{32}) of namespace .* this is incarnation [0-9a-f]{32}: .* take over the store of incarnation ([0-9a-f]{32})( \(not [0-9a-f]+\))?; --blocks names another, --take-over INCARNATION takes it over\n$`)

// ownerOf is the incarnation that a store is of, by a refusal.
func ownerOf(t *testing.T, line string) string {
	t.Helper()
	oneLine(t, line)
	m := incarnations.FindStringSubmatch(line)
	if m == nil || m[1] != m[2] {
		t.Fatalf("no refusal that names the store's incarnation: %s", line)
	}
	return m[1]
}

// takeOver restores from a store that is another incarnation's: refused, until
// it is named.
func (e *ensemble) takeOver(ctx context.Context, blocks string, more ...string) string {
	e.t.Helper()
	r := e.tryRestore(ctx, blocks, more...)
	if r.code != 4 {
		e.t.Fatalf("restore: exit code %d: %s", r.code, r.err)
	}
	return e.restore(ctx, blocks, append(more, "--take-over", ownerOf(e.t.(*testing.T), r.err))...)
}

// at makes all namenodes use another URL for blocks.
func (e *ensemble) at(url string) *ensemble {
	for _, n := range e.all {
		for i := range n.flags {
			if n.flags[i] == "--blocks" {
				n.flags[i+1] = url
			}
		}
	}
	return e
}

func (e *ensemble) kill() {
	for _, n := range e.all {
		n.process.kill()
	}
}

// blockFiles counts the blocks in a backup's folder.
func blockFiles(dir string) (n int) {
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error { // it may be changing
		if strings.HasSuffix(path, ".blk") {
			n++
		}
		return nil
	})
	return n
}

// TestS3Restore: an ensemble is lost, or a bucket, or both.
func TestS3Restore(t *testing.T) {
	t.Parallel()
	onEnsembles(t, []ensembleTest{
		{"FromABackup", restoreBackup},
		{"BackupGoesOn", backupGoesOn},
		{"Refusals", restoreRefusals},
		{"OneStoreOneNamespace", oneStoreOneNamespace},
		{"FromTheArchive", archiveOnS3},
	})
}

type backupReport struct {
	TxID       uint64 `json:"txid"`
	Files      int
	Bytes      int64
	Blocks     int
	BlockBytes int64 `json:"block_bytes"`
	Reused     int
}

// backup runs admin backup, which must succeed.
func (n *namenode) backup(ctx context.Context, dir string, more ...string) (r backupReport) {
	n.t.Helper()
	if err := json.Unmarshal([]byte(n.run(ctx, append(append([]string{"--json", "admin", "backup"}, more...), dir)...)), &r); err != nil {
		n.t.Fatal(err)
	}
	return r
}

// restoreBackup: a backup has all blocks. A namenode alone can be started from
// it, and a new ensemble with a new prefix has the same files.
func restoreBackup(ctx context.Context, t *testing.T, e *ensemble, server *s3env.Server) {
	e.start(ctx)
	odd := oddTree(t)
	e.run(ctx, "put", "-r", odd, "/odd")
	large := strings.Repeat("large ", 400_000)
	e.write(ctx, large, "create", "/large")
	w := e.begin(ctx, nil, "--client", "live", "create", "--flush", "line", "--ack", "/log")
	w.feed("flushed\n")
	w.acksUpTo(ctx, 8)
	dir := filepath.Join(t.TempDir(), "backup")
	r := e.backup(ctx, dir)
	if size, files := folderBytes(t, dir); r.Blocks == 0 || r.Bytes != size || r.Files != files || r.BlockBytes > size {
		t.Errorf("%+v; the folder has %d files, %d bytes", r, files, size)
	}
	t.Logf("%+v", r)
	e.write(ctx, "lost", "create", "/lost")
	w.kill()
	e.kill()

	check := func(n *namenode) {
		t.Helper()
		out := filepath.Join(t.TempDir(), "out")
		n.run(ctx, "get", "-r", "/odd", out)
		sameTrees(ctx, t, odd, out)
		if got := n.run(ctx, "cat", "/large"); got != large {
			t.Errorf("/large has %d bytes", len(got))
		}
		if got := n.run(ctx, "cat", "/log"); got != "flushed\n" {
			t.Errorf("/log has %q", got)
		}
		n.fails(ctx, 3, "", "cat", "/lost")
		n.fsck(ctx)
	}
	forget(ctx, t, e.zk)
	elsewhere := server.URL(prefixOf(t) + "/elsewhere")
	names(t, e.restore(ctx, elsewhere, dir), "all later changes are lost", "of them copied")
	e.cannotRestore(ctx, 4, elsewhere, []string{dir}, "ZooKeeper has a namespace "+ensembleName)
	fresh := newEnsemble(t, e.zk, server, 2).at(elsewhere)
	fresh.start(ctx)
	check(fresh.namenode)
	fresh.write(ctx, large, "create", "/new")
	fresh.run(ctx, "admin", "checkpoint")
	fresh.run(ctx, "admin", "failover")
	fresh.write(ctx, "tail", "append", "/new")
	fresh.kill()
	fresh.start(ctx)
	if got := fresh.run(ctx, "cat", "/new"); got != large+"tail" {
		t.Errorf("/new has %d bytes", len(got))
	}
	check(fresh.namenode)
	fresh.kill()

	alone := newNamenode(t, dir)
	alone.start(ctx)
	check(alone)
	alone.term(ctx)
	// It is no backup any more.
	forget(ctx, t, e.zk)
	e.cannotRestore(ctx, 2, server.URL(prefixOf(t)+"/third"), []string{dir}, "a namenode was started on this backup")
}

// backupGoesOn: the store fails in the middle of a backup, and the next one need
// not start over; shorter failures, and a failover, go by unseen.
func backupGoesOn(ctx context.Context, t *testing.T, e *ensemble, server *s3env.Server) {
	proxy := server.Proxy(t)
	e.at(proxy.URL(prefixOf(t))).start(ctx)
	text := strings.Repeat("some bytes ", 120_000)
	const files = 12
	for i := range files {
		e.write(ctx, text, "create", "/f"+string(rune('a'+i)))
	}
	var gets atomic.Int32
	isBlock := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blocks/")
	}
	parent := t.TempDir()
	dir, part := filepath.Join(parent, "backup"), filepath.Join(parent, ".backup.part")
	const came = 5 // blocks that are there when the first backup fails
	proxy.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		if isBlock(r) && gets.Add(1) > came {
			poll := time.NewTicker(time.Millisecond)
			defer poll.Stop()
			for ctx.Err() == nil && blockFiles(part) < came { // others are under way
				<-poll.C
			}
			return &s3env.Reply{Status: http.StatusForbidden, Body: []byte("<Error><Code>AccessDenied</Code></Error>")}
		}
		return send(body)
	})
	r := e.try(ctx, "", "admin", "backup", dir)
	if r.code == 0 || !strings.Contains(r.err, part) || !strings.Contains(r.err, "continues from there") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	oneLine(t, r.err)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("half a backup is there: %v", err)
	}
	// Bytes that went bad meanwhile are read again.
	spoilt := 0
	err := filepath.WalkDir(part, func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".blk") && spoilt == 0 {
			spoilt++
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			raw[7] ^= 1
			return os.WriteFile(path, raw, 0o600)
		}
		return err
	})
	if err != nil || spoilt != 1 {
		t.Fatal(spoilt, err)
	}
	gets.Store(0)
	var failed atomic.Int32
	proxy.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		if isBlock(r) {
			switch n := gets.Add(1); {
			case n == 2:
				return s3env.Trouble()
			case n == 4 && failed.Add(1) == 1: // a URL that is over
				return &s3env.Reply{Status: http.StatusForbidden, Body: []byte("<Error><Code>AccessDenied</Code></Error>")}
			}
		}
		return send(body)
	})
	e.run(ctx, "admin", "failover")
	e.run(ctx, "rm", "/fa")
	done := e.backup(ctx, dir)
	if done.Reused < came-2 || // one went bad, and one may be the removed file's
		done.Blocks != files-1 {
		t.Errorf("%+v", done)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	blocks := blockFiles(dir)
	if blocks != done.Blocks {
		t.Errorf("%d blocks in the folder, %+v", blocks, done)
	}
	e.kill()
	alone := newNamenode(t, dir)
	alone.start(ctx)
	if got := alone.run(ctx, "cat", "/fl"); got != text {
		t.Errorf("%d bytes", len(got))
	}
	alone.fsck(ctx)
	alone.term(ctx)
}

// restoreRefusals: what cannot be restored, in one line each.
func restoreRefusals(ctx context.Context, t *testing.T, e *ensemble, server *s3env.Server) {
	url := server.URL(prefixOf(t))
	e.start(ctx)
	e.write(ctx, strings.Repeat("text ", 300_000), "create", "/f")
	dir, tree := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "tree")
	e.backup(ctx, dir)
	if r := e.backup(ctx, tree, "--tree-only"); r.Files != 2 || r.Blocks != 0 {
		t.Errorf("%+v", r)
	}
	e.write(ctx, "more", "create", "/g")
	e.run(ctx, "admin", "checkpoint")
	e.kill()
	forget(ctx, t, e.zk)
	empty := server.URL(prefixOf(t) + "/empty")
	e.cannotRestore(ctx, 4, url, []string{dir}, "has images of this namespace", "empty prefix")
	e.cannotRestore(ctx, 3, empty, []string{tree}, "neither in the backup nor in the block store")
	e.cannotRestore(ctx, 3, server.URL(prefixOf(t)+"/nothing"), nil, "has no namespace", "--blocks")
	e.cannotRestore(ctx, 2, empty, []string{t.TempDir()}, "no backup", "admin backup")
	e.cannotRestore(ctx, 2, url, []string{"--id", "xyz"}, "no id of a namespace")
	e.cannotRestore(ctx, 9, strings.Replace(url, server.Bucket, "no-such-bucket", 1), []string{dir}, "no bucket no-such-bucket", "make it")
	var block string
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
		if strings.HasSuffix(path, ".blk") {
			block = path
		}
		return nil
	})
	raw, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	raw[100] ^= 1
	if err := os.WriteFile(block, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	e.cannotRestore(ctx, 10, server.URL(prefixOf(t)+"/damaged"), []string{dir}, "the block is damaged", "another backup")
	// The tree alone will do where the blocks are.
	names(t, e.takeOver(ctx, url), "1 block")
	fresh := newEnsemble(t, e.zk, server, 1)
	fresh.start(ctx)
	if got := fresh.run(ctx, "cat", "/g"); got != "more" {
		t.Errorf("%q", got)
	}
	fresh.fsck(ctx)
}
