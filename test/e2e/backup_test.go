package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	journal "github.com/leasefs/leasefs/internal/journal/local"
)

func TestBackupWhileWriting(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	local := oddTree(t)
	n.run(ctx, "put", "-r", local, "/tree")
	w := n.begin(ctx, nil, "--client", "live", "create", "--flush", "line", "--ack", "/log")
	fed, done := feedUntilGone(w)
	w.acksUpTo(ctx, 10_000)

	dir := filepath.Join(t.TempDir(), "backup")
	acked := w.acked()
	began := time.Now()
	out := n.run(ctx, "admin", "backup", dir)
	t.Logf("%s (%s)", strings.TrimSpace(out), since(began))
	n.fails(ctx, 4, "", "admin", "backup", dir) // not over another
	after := w.acked()
	w.kill()
	<-done

	// The original is not needed for it, and they can run side by side.
	b := newNamenode(t, dir, "--soft-limit", "500ms")
	b.start(ctx)
	got := b.run(ctx, "cat", "/log")
	if int64(len(got)) < acked || int64(len(got)) > after+1<<20 || !strings.HasPrefix(fed.String(), got) {
		t.Errorf("%d bytes in the backup; %d were acknowledged before it, %d after", len(got), acked, after)
	}
	copied := filepath.Join(t.TempDir(), "out")
	b.run(ctx, "get", "-r", "/tree", copied)
	sameTrees(ctx, t, local, copied)
	b.fsck(ctx)
	b.write(ctx, "from the backup\n", "append", "--wait", "20s", "/log")
	b.crash(ctx)
	if got := b.run(ctx, "cat", "/log"); !strings.HasSuffix(got, "\nfrom the backup\n") {
		t.Errorf("%q", tailOf(got))
	}
	n.crash(ctx)
	if got := n.run(ctx, "cat", "/log"); int64(len(got)) < w.acked() || strings.Contains(got, "backup") {
		t.Errorf("%d bytes in the original, %d were acknowledged", len(got), w.acked())
	}
}

// While the files of a lease that has ended wait to be removed, nothing counts, lists or
// copies them, nor does a namespace that is made of a backup of that moment.
func TestBackupAmidTheEndOfALease(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t, "--reap-rate", "1")
	local := t.TempDir()
	for i := range 300 {
		if err := os.WriteFile(filepath.Join(local, fmt.Sprint(i)), []byte("attached"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.run(ctx, "lease", "grant", "--ttl", "1h", "--name", "worker")
	n.run(ctx, "put", "-r", "--lease", "worker", local, "/run")
	n.write(ctx, "stays", "create", "/run/stays")
	used := n.run(ctx, "du", "-s", "/run")
	n.run(ctx, "lease", "revoke", "worker")
	dir := filepath.Join(t.TempDir(), "backup")
	n.run(ctx, "admin", "backup", dir)
	b := newNamenode(t, dir, "--reap-rate", "1")
	b.start(ctx)
	for name, m := range map[string]*namenode{"the original": n, "its backup": b} {
		if files := m.run(ctx, "find", "/run"); files != "/run\n/run/stays\n" {
			t.Errorf("%s lists %q", name, files)
		}
		if now := m.run(ctx, "du", "-s", "/run"); now != "5\t/run\n" {
			t.Errorf("%s has %q, before the end %q", name, now, used)
		}
		copied := filepath.Join(t.TempDir(), "out")
		m.run(ctx, "get", "-r", "/run", copied)
		if files, err := os.ReadDir(copied); err != nil || len(files) != 1 {
			t.Errorf("%s: %d files were copied, %v", name, len(files), err)
		}
		m.fsck(ctx)
	}
	if st := n.run(ctx, "--json", "status"); !strings.Contains(st, `"granted_leases":1,`) {
		t.Errorf("the test was too late, all was removed: %s", st)
	}
}

func TestJournalFromOutside(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	for i := range 50 {
		n.write(ctx, fmt.Sprintf("secret %d", i), "--client", "c", "create", "-p", fmt.Sprintf("/dir/f%d", i))
	}
	n.write(ctx, "open", "--client", "c", "create", "--keep-open", "/open")
	n.term(ctx)

	dump := n.run(ctx, "admin", "journal", "dump", n.data)
	if strings.Contains(dump, "secret 7") {
		t.Error("the dump shows what is in files")
	}
	ops := make(map[string]int)
	last := 0
	for _, line := range lines(dump) {
		var r struct {
			TxID   int
			Op     string
			Fields map[string]any
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.TxID != last+1 {
			t.Fatalf("%q after txid %d: %v", line, last, err)
		}
		last = r.TxID
		ops[r.Op]++
		if token, ok := r.Fields["Token"]; ok && token != "redacted" {
			t.Errorf("a token is shown: %s", line)
		}
	}
	// Tokens are 16 bytes; the sessions, the namespace's id and a reign's nonce,
	// which are no secrets, have as many.
	hex := regexp.MustCompile(`"(\w+)":"[0-9a-f]{32}"`)
	for _, m := range hex.FindAllStringSubmatch(dump, -1) {
		if name := strings.ToLower(m[1]); name != "session" && name != "namespaceid" && name != "nonce" {
			t.Errorf("%s", m[0])
		}
	}
	t.Logf("%d records: %v", last, ops)

	if got := n.run(ctx, "admin", "journal", "verify", n.data); !strings.Contains(got, "no damage") || !strings.Contains(got, fmt.Sprintf("%d records", last)) {
		t.Errorf("%s", got)
	}

	// One flipped bit in the middle.
	segments, err := filepath.Glob(filepath.Join(n.data, "journal", "*"+journal.SegmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	var segment string
	var size int64
	for _, s := range segments {
		if info, err := os.Stat(s); err == nil && info.Mode().IsRegular() && info.Size() > size {
			segment, size = s, info.Size()
		}
	}
	raw, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	at := len(raw) / 2
	raw[at] ^= 0x10
	if err := os.WriteFile(segment, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	line := n.fails(ctx, 10, "", "admin", "journal", "verify", n.data)
	m := regexp.MustCompile(`offset (\d+)`).FindStringSubmatch(line)
	if m == nil || !strings.Contains(line, filepath.Base(segment)) {
		t.Fatalf("%q does not name segment and offset", line)
	}
	if off, _ := strconv.Atoi(m[1]); off > at || off < at-4096 {
		t.Errorf("the bit at offset %d was flipped; %q", at, line)
	}
	t.Logf("bit at %d of %s flipped: %s", at, filepath.Base(segment), strings.TrimSpace(line))
	// Nor does a namenode start on it as if nothing were.
	p := n.launch(ctx)
	p.ends(ctx, 10)
	// Its log comes before: the error is the last line.
	if all := lines(p.err.String()); !strings.HasPrefix(all[len(all)-1], "leasefs: ") || !strings.Contains(all[len(all)-1], filepath.Base(segment)) {
		t.Errorf("%q", p.err)
	}
	raw[at] ^= 0x10
	if err := os.WriteFile(segment, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	n.start(ctx)
	if got := n.run(ctx, "cat", "/dir/f7"); got != "secret 7" {
		t.Errorf("%q", got)
	}
	n.fails(ctx, 3, "", "admin", "journal", "verify", filepath.Join(n.data, "nowhere"))
}

func TestImageFromOutside(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	n.write(ctx, "secret", "create", "-p", "/dir/f")
	n.run(ctx, "ln", "-s", "f", "/dir/link")
	n.run(ctx, "admin", "checkpoint")
	images, err := filepath.Glob(filepath.Join(n.data, "image", "*"))
	if err != nil || len(images) == 0 {
		t.Fatal(images, err)
	}
	image := images[len(images)-1]
	dump := n.run(ctx, "admin", "image", "dump", image)
	if strings.Contains(dump, "secret") {
		t.Error("the dump shows what is in files")
	}
	names(t, dump, `"path":"/dir/f"`, `"length":6`, `"link_target":"f"`, `"namespace"`)
	raw, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	names(t, n.fails(ctx, 10, "", "admin", "image", "dump", damaged), damaged)
	n.fails(ctx, 3, "", "admin", "image", "dump", filepath.Join(n.data, "nothing"))
}
