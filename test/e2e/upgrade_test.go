package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/test/env/size"
)

var lastReleaseLine = regexp.MustCompile(`(?m)^readonly last_release=([0-9a-f]{8})[0-9a-f]{32}$`)

// lastRelease is the program of the last release, which scripts/setup has built from its commit.
func lastRelease(t testing.TB) string {
	t.Helper()
	setup, err := os.ReadFile("../../scripts/setup")
	if err != nil {
		t.Fatal(err)
	}
	m := lastReleaseLine.FindSubmatch(setup)
	if m == nil {
		t.Fatal("scripts/setup names no last release")
	}
	program, err := filepath.Abs("../../.cache/bin/leasefs-" + string(m[1]))
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Fatalf("%v; scripts/setup test builds it", err)
	}
	return program
}

// refusedAsOld starts a namenode whose program is too old, and returns the one line with which it ends.
func (n *namenode) refusedAsOld(ctx context.Context) string {
	n.t.Helper()
	p := n.launch(ctx)
	if code := p.wait(ctx); code == 0 {
		n.t.Fatal("an old program serves a level that it does not know")
	}
	text := behindLog(p.err.String())
	oneLine(n.t, text)
	return text
}

// TestUpgradeAlone: a namenode alone gets a new program, goes back, and gets it again, until the
// level is raised: then the old program is refused in a line, whatever it looks at first.
// All that was written is there. Commands of both releases work with both.
func TestUpgradeAlone(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	old := lastRelease(t)
	n := newNamenode(t, filepath.Join(t.TempDir(), "data"))
	want := ""
	write := func(line string) {
		t.Helper()
		for _, program := range []string{old, ""} {
			c := *n
			c.program = program
			c.write(ctx, line+"\n", "append", "--create", "/f")
			want += line + "\n"
			if got := c.run(ctx, "cat", "/f"); got != want {
				t.Fatalf("%q is there, want %q", got, want)
			}
		}
		n.run(ctx, "admin", "checkpoint")
	}
	for i, program := range []string{old, "", old, ""} {
		n.program = program
		n.start(ctx)
		n.program = ""
		write(fmt.Sprint("by ", i))
		if program == old {
			names(t, n.fails(ctx, fserror.ExitFailure, "", "admin", "upgrade", "finish"), "is of a release that knows no feature levels, so the namespace is at level 1")
			n.run(ctx, "mkdir", "-p", "/kept")
			n.run(ctx, "xattr", "set", "/kept", "user.leasefs.trash", "7d")
			n.run(ctx, "touch", "/kept/f")
			n.run(ctx, "rm", "/kept/f")
			names(t, n.fails(ctx, fserror.ExitFailure, "", "trash", "empty", "--older", "1h"), "does not say for how long entries have been kept")
		} else {
			names(t, n.run(ctx, "admin", "upgrade", "status"), "feature level 1; finishing raises it to 2, which brings quotas", n.listen, "level 2")
		}
		if i < 3 {
			n.term(ctx)
		}
	}
	names(t, n.run(ctx, "admin", "upgrade", "finish"), "feature level 2\n")
	names(t, n.run(ctx, "admin", "upgrade", "finish"), "feature level 2\n") // again: nothing happens
	names(t, n.run(ctx, "admin", "upgrade", "status"), "feature level 2; the newest")
	n.kill()
	n.start(ctx) // what raised it is only in the journal yet
	names(t, n.run(ctx, "admin", "upgrade", "status"), "feature level 2; the newest")
	write("raised")
	// Who connects says of which release it is, but for the old program.
	c := *n
	c.program = old
	w := c.begin(ctx, nil, "append", "--ack", "/f")
	w.feed("by an old one\n")
	want += "by an old one\n"
	w.acksUpTo(ctx, int64(len(want)))
	of := strings.TrimSpace(strings.TrimPrefix(n.run(ctx, "version"), "leasefs "))
	if text := n.run(ctx, "admin", "upgrade", "status"); !regexp.MustCompile(`\nCLIENTS +SESSIONS\nnot told +1\n` + regexp.QuoteMeta(of) + ` +1\n$`).MatchString(text) {
		t.Errorf("the clients are not shown:\n%s", text)
	}
	w.eof()
	w.ends(ctx, 0)
	eventually(ctx, t, "only the new program is connected", func() bool {
		return strings.Contains(n.run(ctx, "--json", "admin", "upgrade", "status"), fmt.Sprintf(`"clients":[{"release":%q,"sessions":1}]`, of))
	})
	n.term(ctx)
	n.program = old
	names(t, n.refusedAsOld(ctx), "has format 2, this program knows up to 1; use the newer leasefs that wrote it")
	// An operator who puts VERSION back is told by what comes next: a record, and then the image.
	version := filepath.Join(n.data, "VERSION")
	back := func() {
		t.Helper()
		text, err := os.ReadFile(version)
		if err == nil {
			err = os.WriteFile(version, []byte(strings.Replace(string(text), "format = 2", "format = 1", 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	back()
	names(t, n.refusedAsOld(ctx), "unknown kind of record 45; it was written by a newer leasefs")
	n.program = ""
	n.start(ctx)
	write("two images of the level")
	n.term(ctx)
	back()
	n.program = old
	names(t, n.refusedAsOld(ctx), "it has format 13, and the newest that this release of leasefs knows is 12: a newer release wrote it; use that one")
	n.program = ""
	n.start(ctx)
	if got := n.run(ctx, "cat", "/f"); got != want {
		t.Errorf("%q is there, want %q", got, want)
	}
	n.fsck(ctx)
}

// load are writers of both releases, all of which go on until it ends.
type load struct {
	e       *fleet
	scribes []scribe // of this release
	old     []*process
	fed     []int64 // bytes that those were fed
	stop    chan struct{}
	wg      sync.WaitGroup

	stalls []wait // when this process did not run, although it only waited for the time to pass
	waits  []wait // the long ones of the old commands
}

// startLoad starts n writers, a few of which are commands of the old program.
func (e *fleet) startLoad(ctx context.Context, n int, old string) *load {
	e.t.Helper()
	const commands, clients = 4, 7
	l := &load{e: e, scribes: make([]scribe, n-commands), fed: make([]int64, commands), stop: make(chan struct{})}
	var libs []*client.FS
	for i := range clients {
		libs = append(libs, e.library(ctx, func(c *client.Config) { c.Cache = i%2 == 0 }))
	}
	for i := range l.scribes {
		s := &l.scribes[i]
		s.path, s.idle = fmt.Sprintf("/lines%02d", i), 100*time.Millisecond // the machine has six namenodes and ZooKeeper besides
		rnd := rand.New(rand.NewPCG(1, uint64(i)))                          //nolint:gosec // a test's
		l.wg.Go(func() { s.err = s.write(ctx, libs[i%clients], rnd, l.stop) })
	}
	c := *e.namenode
	c.program = old
	for i := range commands {
		p := c.begin(ctx, nil, "append", "--create", "--flush", "line", "--ack", oldPath(i))
		l.old = append(l.old, p)
		l.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					_ = p.stdin.Close()
					return
				default:
				}
				m, err := p.stdin.Write([]byte(oldLine(i, n)))
				l.fed[i] += int64(m)
				if err != nil {
					return // its exit code says why
				}
				rest(ctx, 100*time.Millisecond)
			}
		})
	}
	l.wg.Go(l.watch)
	l.progress(ctx, "the start")
	return l
}

// watch looks again and again, until the load ends, at what the old commands have acknowledged; and
// notes when it came late to that, as it does when the machine stands still for all.
func (l *load) watch() {
	const every = 10 * time.Millisecond
	acked, since, last := make([]int64, len(l.old)), make([]time.Time, len(l.old)), time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(last) > 2*every {
			l.stalls = append(l.stalls, wait{last.Add(every), now})
		}
		last = now
		for i, p := range l.old {
			if n := p.acked(); n > acked[i] {
				if !since[i].IsZero() {
					l.waits = noteWait(l.waits, since[i], now)
				}
				acked[i], since[i] = n, now
			}
		}
	}
}

// own is how long a wait was without the time for which the machine stood still.
func (l *load) own(w wait) time.Duration {
	d := w.to.Sub(w.from)
	for _, s := range l.stalls {
		if s.from.Before(w.to) && w.from.Before(s.to) {
			from, to := s.from, s.to
			if from.Before(w.from) {
				from = w.from
			}
			if w.to.Before(to) {
				to = w.to
			}
			d -= to.Sub(from)
		}
	}
	return d
}

func oldPath(i int) string    { return fmt.Sprint("/old", i) }
func oldLine(i, n int) string { return fmt.Sprintf("old %d line %d\n", i, n) }

// progress waits until each writer has written more.
func (l *load) progress(ctx context.Context, after string) {
	l.e.t.Helper()
	was := make([]int64, len(l.scribes)+len(l.old))
	now := func(i int) int64 {
		if i < len(l.scribes) {
			return l.scribes[i].acked.Load()
		}
		return l.old[i-len(l.scribes)].acked()
	}
	for i := range was {
		was[i] = now(i)
	}
	eventually(ctx, l.e.t, "every writer continues after "+after, func() bool {
		for i := range was {
			if now(i) <= was[i] {
				return false
			}
		}
		return true
	})
}

// end ends the writers, and checks that all that they wrote is there. It returns how long one of
// them, of either release, waited for an acknowledgement at most while the machine ran.
func (l *load) end(ctx context.Context, t *testing.T) (pause time.Duration) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	lines := l.e.written(ctx, t, l.scribes)
	for i, p := range l.old {
		p.ends(ctx, 0)
		got, n := l.e.run(ctx, "cat", oldPath(i)), 0
		for line := range strings.Lines(got) {
			if line != oldLine(i, n) {
				t.Errorf("%s: %q where line %d is due", oldPath(i), line, n)
				break
			}
			n++
		}
		if int64(len(got)) != l.fed[i] || p.acked() != l.fed[i] {
			t.Errorf("%s: %d bytes were written, %d acknowledged, %d are there", oldPath(i), l.fed[i], p.acked(), len(got))
		}
		lines += int64(n)
	}
	l.e.fsck(ctx)
	waits := slices.Clone(l.waits)
	for i := range l.scribes {
		waits = append(waits, l.scribes[i].waits...)
	}
	most, beyond := time.Duration(0), 0
	for _, w := range waits {
		most = max(most, w.to.Sub(w.from))
		if own := l.own(w); own > time.Second {
			beyond++
			t.Logf("a writer waited %s for an acknowledgement, until %s, and the machine stood still for %s of that", w.to.Sub(w.from), w.to.Format(time.TimeOnly), w.to.Sub(w.from)-own)
		}
		pause = max(pause, l.own(w))
	}
	t.Logf("%d lines; the longest pause between two acknowledged lines of a writer was %s, without the time for which the machine stood still %s; %d were beyond a second", lines, most.Round(time.Millisecond), pause.Round(time.Millisecond), beyond)
	return pause
}

// replace gives all namenodes another program, the standbys first, and makes the active one hand
// over before its turn comes.
func (e *fleet) replace(ctx context.Context, program string) {
	e.t.Helper()
	replaced := func(m *member) {
		m.term(ctx)
		m.program = program
		m.start(ctx)
		m.standby(ctx)
	}
	a := e.active(ctx)
	for _, m := range e.members {
		if m != a {
			replaced(m)
		}
	}
	for e.active(ctx) == a {
		e.failover(ctx, a)
	}
	a.standby(ctx)
	replaced(a)
}

// TestUpgradeFleet: under 32 writers of both releases the namenodes of a fleet get a new program one
// by one, go back, and get it again; then the level is raised, and the old program is refused.
// Nothing is lost. In full size this happens ten times before the level is raised.
func TestUpgradeFleet(t *testing.T) {
	besideOthers(t)
	rounds := size.Of(1, 10)
	ctx := deadline(t, time.Duration(rounds+9)*time.Minute) // beside others it takes long
	old := lastRelease(t)
	e := startFleet(ctx, t, func(c *fleetConfig) {
		c.program, c.flags = old, []string{"--soft-limit", "5m", "--hard-limit", "10m", "--archive", "24h"}
	})
	l := e.startLoad(ctx, 32, old)
	for round := range rounds {
		e.replace(ctx, "")
		l.progress(ctx, fmt.Sprint("upgrade ", round))
		e.run(ctx, "admin", "checkpoint") // so that a start has little to replay
		e.replace(ctx, old)
		l.progress(ctx, fmt.Sprint("the way back ", round))
	}
	e.replace(ctx, "")
	// A standby of the old release, and one that is down, keep the level from being raised.
	s := e.another(e.settled(ctx))
	s.term(ctx)
	names(t, e.fails(ctx, fserror.ExitUnavailable, "", "admin", "upgrade", "finish"), "does not answer, and may be of an older release", "leasefs admin upgrade status")
	s.program = old
	s.start(ctx)
	s.standby(ctx)
	names(t, e.fails(ctx, fserror.ExitFailure, "", "admin", "upgrade", "finish"), "knows feature levels up to 1, not 2: install the new release there, or stop it")
	names(t, e.run(ctx, "admin", "upgrade", "status"), "feature level 1; finishing raises it to 2, which brings quotas", "level 1", "level 2")
	l.progress(ctx, "what was refused")
	s.term(ctx)
	before := e.active(ctx).look(ctx).TxID
	// Two operators raise it at once, without the one that is down.
	var wg sync.WaitGroup
	for range 2 {
		p := e.begin(ctx, reader(""), "admin", "upgrade", "finish", "--without", s.clients.addr())
		wg.Go(func() { <-p.done })
		defer func() { p.ends(ctx, 0) }()
	}
	wg.Wait()
	names(t, e.run(ctx, "admin", "upgrade", "status"), "feature level 2; the newest")
	l.progress(ctx, "the level was raised")
	names(t, s.refusedAsOld(ctx), "has format 2, this program knows up to 1; use the newer leasefs")
	s.program = ""
	s.start(ctx)
	s.standby(ctx)
	for range 2 { // each of the others continues at the level
		e.failover(ctx, e.active(ctx))
		names(t, e.run(ctx, "admin", "upgrade", "status"), "feature level 2; the newest")
	}
	l.progress(ctx, "the last hand-over")
	if pause := l.end(ctx, t); size.Full && pause > time.Second { // else other tests run beside this one
		t.Errorf("a writer waited for %s", pause)
	}
	e.momentsHaveLevels(ctx, t, before, old)
	// Of a level that this program does not know either, it says who raised it, and ends.
	e.setLevel(ctx, 99)
	a := e.active(ctx)
	e.failover(ctx, a)
	a.wait(ctx)
	text := behindLog(a.err.String())
	oneLine(t, text)
	names(t, text, "namespace "+e.name+" is at feature level 99, and this release of leasefs knows levels up to 2: leasefs 9.0.0 raised it; install that release or a newer one")
}

// momentsHaveLevels restores the moment before the level was raised, and the newest one: the old program
// serves the first, and is refused on the other.
func (e *fleet) momentsHaveLevels(ctx context.Context, t *testing.T, before uint64, old string) {
	t.Helper()
	flags := e.members[0].flags
	blocks := flags[slices.Index(flags, "--blocks")+1]
	for at, level := range map[string]string{fmt.Sprint(before): "format = 1", "newest": "format = 2"} {
		dir := filepath.Join(t.TempDir(), "moment")
		eventually(ctx, t, "the moment "+at+" is archived", func() bool {
			return e.try(ctx, "", "admin", "restore", "--at", at, "--blocks", blocks, dir).code == 0
		})
		version, err := os.ReadFile(filepath.Join(dir, "VERSION"))
		if err != nil {
			t.Fatal(err)
		}
		names(t, string(version), level)
		n := newNamenode(t, dir)
		n.program = old
		if at == "newest" {
			names(t, n.refusedAsOld(ctx), "has format 2, this program knows up to 1")
			n.program = ""
		}
		n.start(ctx)
		names(t, n.run(ctx, "cat", "/lines00"), "/lines00 line 0\n", "/lines00 line 1\n")
		n.fsck(ctx)
		n.term(ctx)
	}
}

// setLevel has the format of the namespace say that another release has raised its level.
func (e *fleet) setLevel(ctx context.Context, level int) {
	e.t.Helper()
	sess, err := zkconn.Dial(ctx, zkconn.Config{Servers: e.zk.Addrs(), SessionTimeout: 10 * time.Second})
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = sess.Close() }()
	path := "/leasefs/" + e.name + "/format"
	raw, _, err := sess.Get(ctx, path)
	if err == nil {
		var now map[string]any
		if err = json.Unmarshal(raw, &now); err == nil {
			now["format"], now["release"] = level, "9.0.0"
			raw, err = json.Marshal(now)
		}
	}
	if err == nil {
		_, err = sess.Set(ctx, path, raw, -1)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// TestWireOneReleaseApart: clients of the last release work with a namenode of this one, and the
// other way around.
func TestWireOneReleaseApart(t *testing.T) {
	t.Parallel()
	old := lastRelease(t)
	for name, programs := range map[string][2]string{"old clients, new namenode": {old, ""}, "new clients, old namenode": {"", old}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := deadline(t, time.Minute)
			n := newNamenode(t, filepath.Join(t.TempDir(), "data"))
			n.program = programs[1]
			n.start(ctx)
			n.program = programs[0] // of all commands
			watch := n.begin(ctx, nil, "watch", "-r", "/")
			n.run(ctx, "mkdir", "-p", "/d/e")
			w := n.begin(ctx, nil, "append", "--create", "--flush", "line", "--ack", "/d/f")
			w.feed("one\n")
			w.acksUpTo(ctx, 4)
			names(t, n.run(ctx, "lease", "ls"), "live")
			names(t, n.run(ctx, "lease", "show", "/d/f"), "/d/f")
			names(t, n.fails(ctx, fserror.ExitHeld, "", "append", "/d/f"), "/d/f")
			n.run(ctx, "lease", "recover", "--force", "/d/f")
			_, _ = w.stdin.Write([]byte("lost\n")) // it may have heard, and ended
			if code := w.wait(ctx); code == 0 {
				t.Error("who has lost the file writes on")
			}
			n.write(ctx, "two\n", "append", "/d/f")
			big := strings.Repeat("0123456789abcdef", 1<<20) // more than a block
			n.write(ctx, big, "append", "--create", "/d/big")
			if n.run(ctx, "cat", "/d/big") != big {
				t.Error("a file of blocks is another")
			}
			n.run(ctx, "mv", "/d/f", "/d/e/g")
			if got := n.run(ctx, "cat", "/d/e/g"); got != "one\ntwo\n" {
				t.Errorf("%q is there", got)
			}
			n.run(ctx, "txn", "if missing /d/u", `create /d/u "three"`, "mv /d/big /d/large")
			n.run(ctx, "xattr", "set", "/d/u", "user.a", "b")
			names(t, n.run(ctx, "xattr", "get", "/d/u", "user.a"), "b")
			names(t, n.run(ctx, "lock", "/d/lock", "--", "sh", "-c", "echo token $LEASEFS_TOKEN"), "token ")
			n.run(ctx, "register", "--data", "here", "/d/service", "--", n.binary(), "--namenode", n.listen, "cat", "/d/service")
			names(t, n.run(ctx, "ls", "-l", "/d"), "large", "lock", "u")
			m := n.mount(ctx)
			if err := os.WriteFile(m.path("d/mounted"), []byte("m"), 0o600); err != nil {
				t.Error(err)
			}
			m.is("d/u", "three")
			m.signal(syscall.SIGTERM)
			m.ends(ctx, 0)
			names(t, n.run(ctx, "cat", "/d/mounted"), "m")
			n.behindAGateway(ctx)
			if programs[1] == old {
				for _, call := range [][]string{{"snapshot", "allow", "/d"}, {"snapshot", "ls"}, {"quota", "set", "--names", "9", "/d"}} {
					names(t, n.fails(ctx, fserror.ExitFailure, "", call...), "the namenode is of an older release, and does not know this call", "docs/UPGRADES.md says how to upgrade it")
				}
			}
			n.run(ctx, "rm", "-r", "/d/e")
			watch.prints(ctx, watch.out, "what was removed", func(s string) bool { return strings.Contains(s, "delete") })
			names(t, watch.out.String(), "create", "rename", "/d/e/g")
			n.run(ctx, "status")
			n.run(ctx, "admin", "checkpoint")
			n.fsck(ctx)
		})
	}
}

// behindAGateway starts a gateway of the commands' program, and writes, lists and reads a file by it.
func (n *namenode) behindAGateway(ctx context.Context) {
	n.t.Helper()
	g := startGateway(ctx, n)
	ask := func(method, op, body string) string {
		n.t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, "http://"+g.addr+"/webhdfs/v1/d/by-hadoop?user.name=root&data=true&op="+op, strings.NewReader(body))
		if err != nil {
			n.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/octet-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			n.t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode/100 != 2 {
			n.t.Errorf("%s: %s %v %s", op, resp.Status, err, text)
		}
		return string(text)
	}
	ask(http.MethodPut, "CREATE", "by a gateway")
	ask(http.MethodPost, "APPEND", ", twice")
	names(n.t, ask(http.MethodGet, "GETFILESTATUS", ""), `"length":19`)
	names(n.t, ask(http.MethodGet, "OPEN", "")+n.run(ctx, "cat", "/d/by-hadoop"), "by a gateway, twiceby a gateway, twice")
	g.signal(syscall.SIGTERM)
	g.ends(ctx, 0)
}

// TestOldStandbyReadsOfTheLevel: an old namenode that stood still while the level was raised says in a
// line why it does not continue, and never serves.
func TestOldStandbyReadsOfTheLevel(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	old := lastRelease(t)
	e := startFleet(ctx, t, func(c *fleetConfig) { c.program, c.n = old, 2 })
	a := e.settled(ctx)
	s := e.another(a)
	s.term(ctx)
	s.program = ""
	s.start(ctx)
	s.standby(ctx)
	for e.active(ctx) == a {
		e.failover(ctx, a)
	}
	a.standby(ctx)
	// It stands still, so that its node is gone from the election when it is looked at.
	a.stop(ctx)
	eventually(ctx, t, "only the new one is known", func() bool {
		return strings.Count(e.run(ctx, "admin", "upgrade", "status"), "level 1") == 1 // in the first line
	})
	e.run(ctx, "admin", "upgrade", "finish", "--without", a.clients.addr())
	a.cont()
	// It ends, or tries again for ever, as it does with whatever keeps it from starting again.
	eventually(ctx, t, "the old standby has read of the level", func() bool {
		text := a.err.String()
		return strings.Contains(text, "unknown kind of record 45; it was written by a newer leasefs") || strings.Contains(text, "has format 2, this program knows up to 1; use the newer leasefs")
	})
	if role := a.role(ctx); role == "active" {
		t.Error("the old program is active")
	}
	e.write(ctx, "x\n", "append", "--create", "/f")
	if got := e.run(ctx, "cat", "/f"); got != "x\n" {
		t.Errorf("%q is there", got)
	}
}
