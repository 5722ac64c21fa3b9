package e2e_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/local"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env/s3env"
)

// rule is an alarm of deploy/prometheus-alerts.yml, runbook its section of docs/RUNBOOKS.md.
type rule struct{ expr, link string }

type runbook struct {
	commands string // of its blocks
	tried    bool   // as the page says
	mended   bool   // by more than its commands, as the page says
}

// rules are those of deploy/prometheus-alerts.yml.
func rules(t *testing.T) map[string]rule {
	t.Helper()
	raw, err := os.ReadFile("../../deploy/prometheus-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]rule{}
	for _, text := range strings.Split(string(raw), "- alert: ")[1:] {
		name, _, _ := strings.Cut(text, "\n")
		field := func(name string) string {
			m := regexp.MustCompile(`(?m)^ +` + name + `: (.*)$`).FindStringSubmatch(text)
			if m == nil {
				return ""
			}
			return m[1]
		}
		all[name] = rule{field("expr"), field("runbook_url")}
	}
	return all
}

// runbooks are the sections of docs/RUNBOOKS.md.
func runbooks(t *testing.T) map[string]runbook {
	t.Helper()
	raw, err := os.ReadFile("../../docs/RUNBOOKS.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]runbook{}
	for _, text := range strings.Split(string(raw), "\n## ")[1:] {
		name, text, _ := strings.Cut(text, "\n")
		var commands string
		for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
			commands += m[1]
		}
		for _, needed := range []string{"*Refused", "*Over*"} {
			if !strings.Contains(text, needed) {
				t.Errorf("docs/RUNBOOKS.md: %s does not say %s", name, needed)
			}
		}
		mended := strings.HasPrefix(strings.TrimSpace(text), "**tried, and mended.**")
		all[name] = runbook{commands, mended || strings.HasPrefix(strings.TrimSpace(text), "**tried.**"), mended}
	}
	return all
}

// TestEachAlarmHasARunbook, to which its rule leads, and none is of an alarm that there is not.
func TestEachAlarmHasARunbook(t *testing.T) {
	t.Parallel()
	alarms, books := rules(t), runbooks(t)
	if len(alarms) < 30 {
		t.Fatalf("%d alarms", len(alarms))
	}
	for name, a := range alarms {
		if _, ok := books[name]; !ok {
			t.Errorf("docs/RUNBOOKS.md has nothing of %s", name)
		}
		if want := "https://github.com/leasefs/leasefs/blob/main/docs/RUNBOOKS.md#" + strings.ToLower(name); a.link != want {
			t.Errorf("%s leads to %q, not to %s", name, a.link, want)
		}
	}
	for name := range books {
		if _, ok := alarms[name]; !ok {
			t.Errorf("docs/RUNBOOKS.md has %s, which is no alarm", name)
		}
	}
}

// drill is a namenode of which alarms fire.
type drill struct {
	*namenode
	t      *testing.T
	prom   prometheus
	alarms map[string]rule
	books  map[string]runbook
	shown  string // by Prometheus as what: a regular expression
	bin    string // of the commands of runbooks
	asked  string // file with what systemctl was asked for

	followed, mended map[string]bool // runbooks
}

func newDrill(t *testing.T, n *namenode) *drill {
	t.Helper()
	d := &drill{namenode: n, t: t, alarms: rules(t), books: runbooks(t), shown: n.http, followed: map[string]bool{}, mended: map[string]bool{}}
	t.Cleanup(func() {
		for name := range d.followed {
			if d.mended[name] != d.books[name].mended && !t.Failed() {
				t.Errorf("that %s ends by more than the commands of its runbook is %t, and the page says %t", name, d.mended[name], d.books[name].mended)
			}
		}
	})
	d.asked = filepath.Join(t.TempDir(), "asked")
	d.bin = standIns(t, map[string]string{"systemctl": `echo "$@" >>` + d.asked, "timedatectl": "true"})
	program, err := filepath.Abs(leasefs)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(d.bin, "leasefs")); err != nil {
		t.Fatal(err)
	}
	return d
}

// ranges are the times over which rules look back; window is that of drills, which cannot wait
// for an hour until it is over.
var ranges = regexp.MustCompile(`\[(5m|15m|1h)\]`)

const window = "[20s]"

// smaller are limits that a namenode reaches only in minutes, and those of drills.
var smaller = map[string]struct{ limit, drill string }{
	"LeasefsLeaseMonitorLate": {" > 60", " > 0.3"},
	"LeasefsZooKeeperFull":    {" > 600e6", " > 6e6"},
	"LeasefsNoImage":          {" > 3e6", " > 1e3"},
}

// fires waits until the rule's expression has a result for this namenode, or none.
func (d *drill) fires(ctx context.Context, name string, want bool) {
	d.t.Helper()
	d.firesBy(ctx, name, want, func() {})
}

// firesBy is fires, and does something again and again until then.
func (d *drill) firesBy(ctx context.Context, name string, want bool, do func()) {
	d.t.Helper()
	eventually(ctx, d.t, fmt.Sprintf("%s fires: %t", name, want), func() bool {
		do()
		fires, err := d.firing(ctx, name)
		return err == nil && fires == want
	})
}

// firing reports whether it fires now.
func (d *drill) firing(ctx context.Context, name string) (bool, error) {
	d.t.Helper()
	expr := strings.ReplaceAll(d.alarms[name].expr, `{job="leasefs"`, fmt.Sprintf(`{job="leasefs", instance=~%q`, d.shown))
	if expr == "" {
		d.t.Fatalf("there is no alarm %s", name)
	}
	if s, ok := smaller[name]; ok {
		if !strings.Contains(expr, s.limit) {
			d.t.Fatalf("the limit of %s is not %s: %s", name, s.limit, expr)
		}
		expr = strings.ReplaceAll(expr, s.limit, s.drill)
	}
	over := window
	if slices.Contains([]string{"LeasefsArchiveBlocksLost", "LeasefsArchiveHole", "LeasefsFlapping"}, name) { // counted once, and of what takes time
		over = "[1m]"
	}
	expr = strings.ReplaceAll(ranges.ReplaceAllString(expr, over), "offset 1h", "offset "+strings.Trim(over, "[]"))
	n, err := d.prom.series(ctx, expr)
	if n > 0 || err != nil {
		return n > 0, err
	}
	// It has none either while nobody is scraped.
	shown, err := d.prom.series(ctx, fmt.Sprintf(`sum_over_time(up{job="leasefs", instance=~%q}%s) >= 2 and on (instance) up == 1`, d.shown, window))
	if all := strings.Count(d.shown, "|") + 1; err == nil && shown < all {
		err = fmt.Errorf("%d of %d namenodes are scraped", shown, all)
	}
	return false, err
}

// follow gives the commands of an alarm's runbook.
func (d *drill) follow(ctx context.Context, name string, words ...string) {
	d.t.Helper()
	d.followed[name] = true
	commands := d.books[name].commands
	if !d.books[name].tried || !strings.Contains(commands, "leasefs ") {
		d.t.Fatalf("the runbook of %s has no commands, or does not say that it is tried", name)
	}
	p := start(ctx, d.t, spec{
		argv:  []string{"sh", "-exc", strings.NewReplacer(words...).Replace(commands)},
		env:   []string{"LEASEFS_NAMENODE=" + d.listen, "PATH=" + d.bin + ":" + os.Getenv("PATH")},
		stdin: reader(""),
	})
	if code := p.wait(ctx); code != 0 {
		d.t.Fatalf("the runbook of %s ends with %d\n%s\n%s", name, code, p.out.String(), p.err.String())
	}
}

// mends ends what causes an alarm, which its commands do not.
func (d *drill) mends(name string, mend func()) {
	d.mended[name] = true
	mend()
}

// startsAsAsked starts a namenode as a runbook has asked systemctl to.
func (d *drill) startsAsAsked(ctx context.Context, n *namenode) {
	d.t.Helper()
	asked, err := os.ReadFile(d.asked)
	if err != nil || string(asked) != "restart leasefs-namenode@prod\n" {
		d.t.Fatalf("systemctl was asked for %q, %v", asked, err)
	}
	if err := os.Remove(d.asked); err != nil {
		d.t.Fatal(err)
	}
	n.start(ctx)
}

// TestRunbooks: alarms fire, as a real Prometheus reads their rules off a real namenode, and the
// commands of their runbooks end them. How long a rule waits before it fires is TestAlarms'.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	disk, logs := newScratch(ctx, t, "512m"), newScratch(ctx, t, "8m")
	small := newNamenode(t, filepath.Join(disk.dir, "data"))
	small.via = disk.via
	audited := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--audit", filepath.Join(logs.dir, "audit"))
	audited.via = logs.via
	scrubbed := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--scrub", "1m")
	hurried := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--scrub", "1m", "--scrub-rate", "64K")
	plain := newNamenode(t, filepath.Join(t.TempDir(), "data"))
	folder, kept := t.TempDir(), newScratch(ctx, t, "512m")
	archived := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--archive", "1h", "--blocks", "file://"+folder)
	keeping := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--archive", "1h", "--blocks", "file://"+filepath.Join(kept.dir, "blocks"))
	keeping.via = kept.via
	holed := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--archive", "1h", "--blocks", "file://"+t.TempDir())
	crowded := newNamenode(t, filepath.Join(t.TempDir(), "data"))
	crowded.via = withFiles(256)
	server := s3env.Start(t, s3env.Versitygw)
	proxy := server.Proxy(t)
	bucket := onS3(t, server, proxy.URL(prefixOf(t)))
	common := server.URL(prefixOf(t) + "/common")
	copied, strays := onS3(t, server, common), t.TempDir()
	swept := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--blocks", "file://"+strays)
	drills := map[string]func(context.Context, *drill) (tried []string){"small": func(ctx context.Context, d *drill) []string { return drillRoom(ctx, d, disk) },
		"audited": func(ctx context.Context, d *drill) []string { return drillAudit(ctx, d, logs) }, "scrubbed": drillBlocks, "hurried": drillScrubLate, "plain": drillPlain, "crowded": drillCrowd,
		"archived": func(ctx context.Context, d *drill) []string { return drillArchive(ctx, d, folder) }, "holed": drillHole,
		"keeping": func(ctx context.Context, d *drill) []string { return drillKept(ctx, d, kept) },
		"bucket":  func(ctx context.Context, d *drill) []string { return drillStore(ctx, d, proxy) },
		"copied":  func(ctx context.Context, d *drill) []string { return drillCopies(ctx, d, onS3(t, server, common)) },
		"swept":   func(ctx context.Context, d *drill) []string { return drillStrays(ctx, d, strays) }}
	namenodes := map[string]*namenode{"small": small, "audited": audited, "scrubbed": scrubbed, "hurried": hurried, "plain": plain, "archived": archived, "keeping": keeping, "crowded": crowded, "bucket": bucket, "copied": copied, "swept": swept, "holed": holed}
	prom := startPrometheus(t, map[string][]string{"leasefs": pagesOf(slices.Collect(maps.Values(namenodes))...)})
	untried := map[string]bool{}
	for name, b := range runbooks(t) {
		if b.tried && !slices.Contains(ofSeveral, name) {
			untried[name] = true
		}
	}
	tried := make(chan []string, len(drills))
	t.Run("drills", func(t *testing.T) {
		for name, run := range drills {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx := deadline(t, 5*time.Minute) // from its turn on
				d := newDrill(t, namenodes[name])
				d.prom, d.namenode.t = prom, t
				d.start(ctx)
				tried <- run(ctx, d)
			})
		}
	})
	if t.Failed() {
		return
	}
	if len(tried) < len(drills) {
		return // -run chose some
	}
	close(tried)
	for names := range tried {
		for _, name := range names {
			delete(untried, name)
		}
	}
	for name := range untried {
		t.Errorf("docs/RUNBOOKS.md says that %s is tried, which it is not", name)
	}
}

// drillPlain: the namenode is gone, is in safe mode, has a damaged image.
func drillPlain(ctx context.Context, d *drill) []string {
	d.write(ctx, "content", "create", "/f")
	for _, name := range []string{"LeasefsNoActiveNamenode", "LeasefsNamenodeDown"} {
		d.fires(ctx, name, false)
		d.kill()
		d.fires(ctx, name, true)
		d.follow(ctx, name)
		d.startsAsAsked(ctx, d.namenode)
		d.fires(ctx, name, false)
	}

	d.run(ctx, "admin", "safemode", "on")
	d.fires(ctx, "LeasefsSafeMode", true)
	d.follow(ctx, "LeasefsSafeMode")
	d.fires(ctx, "LeasefsSafeMode", false)
	d.write(ctx, "more", "append", "/f")

	d.run(ctx, "admin", "checkpoint")
	images, err := filepath.Glob(filepath.Join(d.data, "image", "*"))
	if err != nil || len(images) == 0 {
		d.t.Fatalf("%q, %v", images, err)
	}
	for _, name := range images {
		damage(d.t, name)
	}
	d.run(ctx, "mkdir", "/d")
	d.run(ctx, "admin", "checkpoint") // reads the one before
	d.fires(ctx, "LeasefsImageDamaged", true)
	d.follow(ctx, "LeasefsImageDamaged")
	d.fires(ctx, "LeasefsImageDamaged", false)

	const old = "LeasefsNoImage"
	d.fires(ctx, old, false)
	makeDirs(ctx, d.t, d.client(ctx), 1100)
	d.fires(ctx, old, true)
	d.follow(ctx, old)
	d.fires(ctx, old, false)
	return []string{"LeasefsNoActiveNamenode", "LeasefsNamenodeDown", "LeasefsSafeMode", "LeasefsImageDamaged", old}
}

// damage changes a byte in the middle of a file.
func damage(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name) //nolint:gosec // of the test
	if err == nil {
		b[len(b)/2] ^= 1
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// drillRoom: somebody else fills the disk.
func drillRoom(ctx context.Context, d *drill, disk *scratch) []string {
	const mib = 1 << 20
	alarms := []string{"LeasefsSpaceShort", "LeasefsFullSoon", "LeasefsLeaseHistoryLost"}
	for i := range alarms {
		d.write(ctx, strings.Repeat("x", 64*mib), "create", fmt.Sprint("/", i))
	}
	for i, name := range alarms {
		d.fires(ctx, name, false)
		w := d.begin(ctx, nil, "create", "--overwrite", "/w")
		w.feed("x")
		disk.fill(100 * mib) // 128 MiB are kept free
		d.fires(ctx, "LeasefsSpaceShort", true)
		w.eof()
		w.ends(ctx, 0) // the history is told of the end of a lease
		d.fires(ctx, name, true)
		d.follow(ctx, name, "FILE", fmt.Sprint("/", i))
		d.fires(ctx, name, false)
	}
	d.fires(ctx, "LeasefsSpaceShort", false) // which may be seen later than that the history is written again
	d.write(ctx, "x", "create", "/new")
	return alarms
}

// drillAudit: the audit log's disk is full.
func drillAudit(ctx context.Context, d *drill, disk *scratch) []string {
	d.fires(ctx, "LeasefsAuditLost", false)
	disk.fill(0)
	eventually(ctx, d.t, "lines cannot be written", func() bool {
		return strings.Contains(d.run(ctx, "status", "--json"), `"audit_problem":"`)
	})
	d.fires(ctx, "LeasefsAuditLost", true)
	d.follow(ctx, "LeasefsAuditLost")
	d.mends("LeasefsAuditLost", disk.empty)
	d.fires(ctx, "LeasefsAuditLost", false)
	return []string{"LeasefsAuditLost"}
}

// drillBlocks: the scrub finds a block damaged.
func drillBlocks(ctx context.Context, d *drill) []string {
	good := strings.Repeat("good", 1<<20)
	source := filepath.Join(d.t.TempDir(), "good")
	if err := os.WriteFile(source, []byte(good), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.run(ctx, "put", source, "/f")
	n := 0
	if err := filepath.WalkDir(filepath.Join(d.data, "blocks"), func(path string, e os.DirEntry, err error) error {
		if info, ierr := e.Info(); err == nil && ierr == nil && e.Type().IsRegular() && info.Size() >= int64(len(good)) {
			damage(d.t, path)
			n++
		}
		return err
	}); err != nil || n != 1 {
		d.t.Fatalf("%d blocks, %v", n, err)
	}
	d.fires(ctx, "LeasefsBlocksDamaged", true)
	d.follow(ctx, "LeasefsBlocksDamaged", "COPY", source, "FILE", "/f")
	d.fires(ctx, "LeasefsBlocksDamaged", false)
	if got := d.run(ctx, "cat", "/f"); got != good {
		d.t.Errorf("%d bytes, want %d", len(got), len(good))
	}
	return []string{"LeasefsBlocksDamaged"}
}

// drillScrubLate: there is more than the scrub can read within its period.
func drillScrubLate(ctx context.Context, d *drill) []string {
	const name = "LeasefsScrubLate"
	d.fires(ctx, name, false)
	d.write(ctx, strings.Repeat("x", 8<<20), "create", "/f") // of which a pass takes two minutes
	d.kill()
	d.namenode.start(ctx)
	d.fires(ctx, name, true)
	names(d.t, d.run(ctx, "status"), "(scrub late)")
	d.follow(ctx, name)
	d.kill()
	d.mends(name, func() { *flagAt(d.t, d.flags, "--scrub-rate") = "32M" })
	d.startsAsAsked(ctx, d.namenode)
	d.fires(ctx, name, false)
	return []string{name}
}

// drillArchive: the store takes nothing of the archive.
func drillArchive(ctx context.Context, d *drill, folder string) []string {
	const behind = "LeasefsArchiveBehind"
	named := d.archived(ctx, folder)
	d.fires(ctx, behind, false)
	mend := refuseFiles(d.t, named)
	d.run(ctx, "mkdir", "/e")
	d.fires(ctx, behind, true)
	d.follow(ctx, behind)
	d.mends(behind, mend)
	d.fires(ctx, behind, false)
	return []string{behind}
}

// archived waits until all is archived, in the folder that it returns.
func (d *drill) archived(ctx context.Context, folder string) (named string) {
	d.t.Helper()
	d.run(ctx, "mkdir", "-p", "/d")
	eventually(ctx, d.t, "all is archived", func() bool {
		all, err := filepath.Glob(filepath.Join(folder, "*", "named"))
		if err == nil && len(all) == 1 {
			named = all[0]
		}
		return named != "" && strings.Contains(d.page(ctx, "metrics"), "leasefs_archive_lag_records 0\n")
	})
	return named
}

// drillHole: the store takes nothing of the archive for so long that the journal is purged.
func drillHole(ctx context.Context, d *drill) []string {
	const hole = "LeasefsArchiveHole"
	d.alter(d.t)
	d.crash(ctx)
	folder := strings.TrimPrefix(flagOf(d.t, d.flags, "--blocks"), "file://")
	named := d.archived(ctx, folder)
	d.fires(ctx, hole, false)
	mend := refuseFiles(d.t, named)
	for i := range 3 { // the journal is purged up to the older of two images
		d.run(ctx, "mkdir", fmt.Sprint("/d/", i))
		d.run(ctx, "admin", "checkpoint")
	}
	d.mends(hole, mend)
	d.fires(ctx, hole, true)
	d.follow(ctx, hole)
	d.archived(ctx, folder)
	d.fires(ctx, hole, false)
	return []string{hole}
}

// drillKept: the store gets full of what only the archive needs.
func drillKept(ctx context.Context, d *drill, disk *scratch) []string {
	const mib, name = 1 << 20, "LeasefsArchiveBlocksLost"
	d.write(ctx, strings.Repeat("x", 32*mib), "create", "/old")
	d.run(ctx, "rm", "--skip-trash", "/old")
	d.fires(ctx, name, false)
	disk.fill(100 * mib)
	d.fires(ctx, name, true)
	d.follow(ctx, name)
	d.mends(name, disk.empty)
	d.fires(ctx, name, false)
	d.write(ctx, strings.Repeat("x", 32*mib), "create", "/new")
	return []string{name}
}

// drillCrowd: others have all connections, and something under way on each.
func drillCrowd(ctx context.Context, d *drill) []string {
	const name, connections = "LeasefsConnectionsRefused", 120
	d.fires(ctx, name, false)
	var busy []*grpc.ClientConn
	end := func(n int) {
		for _, cc := range busy[:n] {
			_ = cc.Close() // it has nothing to say
		}
		busy = busy[n:]
	}
	defer func() { end(len(busy)) }()
	d.firesBy(ctx, name, true, func() {
		for range connections {
			cc, err := grpc.NewClient(d.listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				d.t.Fatal(err)
			}
			busy = append(busy, cc)
			if !connects(ctx, cc) {
				break // there is no room
			}
			if _, err := pb.NewNamenodeClient(cc).Watch(ctx, &pb.WatchRequest{Caller: &pb.Caller{User: "root"}, Path: "/"}); err != nil {
				break
			}
		}
		end(min(len(busy), 20)) // for Prometheus
	})
	d.follow(ctx, name)
	d.kill()
	d.mends(name, func() { d.via = nil }) // more files
	d.startsAsAsked(ctx, d.namenode)
	d.fires(ctx, name, false)
	return []string{name}
}

// drillStore: the store's clock is wrong, and then it answers that it is busy.
func drillStore(ctx context.Context, d *drill, proxy *s3env.Proxy) []string {
	const differ, trouble, fails = "LeasefsClocksDiffer", "LeasefsStoreTrouble", "LeasefsStoreErrors"
	d.write(ctx, strings.Repeat("x", 1<<20), "create", "/f")
	d.fires(ctx, differ, false)
	proxy.Set(func(_ *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		reply := send(body)
		if reply != nil {
			reply.Header.Set("Date", time.Now().Add(30*time.Second).UTC().Format(http.TimeFormat))
		}
		return reply
	})
	d.fires(ctx, differ, true)
	d.follow(ctx, differ)
	d.mends(differ, func() { proxy.Set(nil) })
	d.fires(ctx, differ, false)

	for _, name := range []string{trouble, fails} {
		d.fires(ctx, name, false)
		proxy.Set(func(*http.Request, []byte, func([]byte) *s3env.Reply) *s3env.Reply { return s3env.Trouble() })
		d.firesBy(ctx, name, true, func() { d.try(ctx, "", "--timeout", "5s", "admin", "fsck", "--blocks", "/f") })
		d.mends(name, func() { proxy.Set(nil) })
		d.follow(ctx, name, "FILE", "/f")
		d.fires(ctx, name, false)
	}
	return []string{differ, trouble, fails}
}

// drillCopies: a copy of the namespace uses the same store.
func drillCopies(ctx context.Context, d *drill, other *namenode) []string {
	const name = "LeasefsStoreConflict"
	d.write(ctx, strings.Repeat("x", 2<<20), "create", "/f")
	d.fires(ctx, name, false)
	d.term(ctx)
	if err := os.CopyFS(other.data, os.DirFS(d.data)); err != nil {
		d.t.Fatal(err)
	}
	d.start(ctx)
	other.t = d.t
	other.start(ctx)
	d.firesBy(ctx, name, true, func() { d.try(ctx, "", "admin", "gc") }) // which looks for others at once
	d.mends(name, other.kill)                                            // for good
	d.follow(ctx, name, "ONE_THAT_STAYS", d.listen)
	d.fires(ctx, name, false)
	return []string{name}
}

// drillStrays: safe mode stops the collector; and there are blocks for which nothing vouches,
// as of another copy of the namespace. To wait until a block may go takes a clock that is
// ahead.
func drillStrays(ctx context.Context, d *drill, folder string) []string {
	const garbage, unswept, panics = "LeasefsGarbageGrows", "LeasefsUnsweptBlocks", "LeasefsPanic"
	ahead := d.alter(d.t)
	term := d.status(ctx).Term
	d.crash(ctx) // its blocks are of an earlier reign then
	d.write(ctx, strings.Repeat("x", 2<<20), "create", "/f")
	d.run(ctx, "rm", "--skip-trash", "/f")
	eventually(ctx, d.t, "its blocks are garbage", func() bool { return d.status(ctx).GarbageBlocks > 0 })
	d.run(ctx, "admin", "safemode", "on")
	d.fires(ctx, garbage, false)
	ahead("mono", 2*time.Hour)
	d.fires(ctx, garbage, true)
	d.follow(ctx, garbage)
	d.fires(ctx, garbage, false)

	d.fires(ctx, unswept, false)
	spaces, err := filepath.Glob(filepath.Join(folder, "*", "NAMESPACE"))
	if err != nil || len(spaces) != 1 {
		d.t.Fatalf("%q, %v", spaces, err)
	}
	var id [16]byte
	if _, err := hex.Decode(id[:], []byte(filepath.Base(filepath.Dir(spaces[0])))); err != nil {
		d.t.Fatal(err)
	}
	for i := range 10_001 {
		path := filepath.Join(folder, local.FileName(id, blockstore.Key{Term: term, Seq: 1<<40 + uint64(i)})) //nolint:gosec // small
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			d.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("stray"), 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	d.fires(ctx, unswept, true)
	d.follow(ctx, unswept)
	d.fires(ctx, unswept, false)

	d.fires(ctx, panics, false)
	d.firesBy(ctx, panics, true, func() { d.fails(ctx, fserror.ExitFailure, "", "stat", panicsAt) })
	d.follow(ctx, panics)
	d.fires(ctx, panics, false)
	return []string{garbage, unswept, panics}
}

// makeDirs makes directories, many at a time.
func makeDirs(ctx context.Context, t *testing.T, fsys *client.FS, n int) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(200)
	for i := range n {
		g.Go(func() error { return fsys.Mkdir(ctx, fmt.Sprint("/made", i), 0o755) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}
