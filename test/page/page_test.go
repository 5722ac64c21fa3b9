package page

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/size"
	"github.com/leasefs/leasefs/test/env/spawn"
	"github.com/leasefs/leasefs/test/env/zkproxy"
	"github.com/leasefs/leasefs/test/sim/zkmodel"
)

// patient has leases outlive what a test takes on a busy machine.
var patient = env.Limits(20*time.Minute, time.Hour)

// TestPageInChromium is what an operator does at night: he looks who holds what, takes a file
// from its holder, follows another, and reads the rest; by keyboard, on a phone, in the dark.
func TestPageInChromium(t *testing.T) {
	n := env.Start(t, patient, func(c *namenode.Config) {
		c.Archive, c.BlockSize, c.MaxTail, c.WatchEvents = time.Hour, 64<<10, 4096, 1000
		file := filepath.Join(t.TempDir(), "shares")
		if err := os.WriteFile(file, []byte("user greedy files=1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		if c.Shares, err = namenode.OpenShares(clock.System{}, file); err != nil {
			t.Fatal(err)
		}
	})
	admin := n.Client(t, env.Named("before"))
	forget(t, n, admin)
	const nasty = "<img src=x onerror=alert(1)>"
	holder := n.Raw(t, "ingest-1")
	w := holder.Create("/app.log")
	if err := holder.Flush(w, 0, "flushed\n"); err != nil {
		t.Fatal(err)
	}
	busy := n.Raw(t, "ingest-2")
	busy.Create("/audit.log")
	busy.Create("/second.log")
	n.Raw(t, nasty).Create("/" + nasty)
	live := n.Raw(t, "tailer")
	lw := live.Create("/live")
	if err := live.Flush(lw, 0, "first line\n"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(admin.Mkdir(t.Context(), "/team", 0o755), admin.Mkdir(t.Context(), "/team/logs", 0o755),
		admin.Mkdir(t.Context(), "/free", 0o755), admin.Chmod(t.Context(), "/free", 0o777)); err != nil {
		t.Fatal(err)
	}
	dirs := n.Raw(t, "dirs")
	if _, err := dirs.NN.SetQuota(t.Context(), &pb.SetQuotaRequest{Call: dirs.Call(), Caller: dirs.Who, At: pb.At("/team"), Names: proto.Int64(3), Bytes: proto.Int64(1 << 40)}); err != nil {
		t.Fatal(err)
	}
	grantee := n.Raw(t, "scheduler")
	if _, err := grantee.NN.GrantLease(t.Context(), &pb.GrantLeaseRequest{Call: grantee.Call(), Caller: grantee.Who, TtlMs: 3_600_000, Name: "nightly"}); err != nil {
		t.Fatal(err)
	}
	waiter := n.Raw(t, "waiter-1")
	go func() {
		for t.Context().Err() == nil { // each call ends after two minutes
			_, _ = waiter.NN.Append(t.Context(), &pb.AppendRequest{Call: waiter.Call(), Caller: waiter.Who, At: pb.At("/live"), WaitMs: time.Hour.Milliseconds()})
		}
	}()
	b := open(t, n)
	b.signIn("root")

	// Who holds what, and who waits for it.
	b.shows("ingest-1")
	b.shows("waiter-1")
	b.shows(nasty)
	if got := b.value("document.querySelectorAll('tbody tr').length"); got != "4" {
		t.Errorf("%s leases", got)
	}
	if got := b.value("document.images.length + document.querySelectorAll('#view img').length"); got != "0" {
		t.Errorf("a name has become %s pictures", got)
	}
	b.picture("holders")
	b.choose("order", "FILES")
	b.until("who has most files is first", "document.querySelector('tbody tr').innerText.includes('ingest-2') && location.hash.includes('order=FILES')")
	b.choose("order", "IDLE")
	b.until("who is idle for longest is first", "document.querySelector('tbody tr').innerText.includes('ingest-1') && !location.hash.includes('order')")
	b.filter("INGEST-2")
	b.until("it is filtered", "document.querySelectorAll('tbody tr').length === 1 && "+text+".includes('ingest-2')")
	b.view("#/granted")
	b.shows("nightly")

	// By keyboard.
	b.runs("leave the filter", "document.activeElement.blur()")
	b.keys("1")
	b.until("key 1", "document.getElementById('view').dataset.view === 'holders' && document.querySelectorAll('tbody tr').length === 4")
	b.keys("?")
	b.until("it lists its keys", "document.querySelector('dialog')?.innerText.includes('previous row')")
	b.keys("\x1b")
	b.until("it closes the list", "document.querySelector('dialog') === null")
	for _, c := range []struct {
		key string
		row int
	}{{"j", 0}, {"j", 1}, {"k", 0}, {"k", 0}, {kb.ArrowDown, 1}, {kb.ArrowDown, 2}, {kb.ArrowUp, 1}} {
		b.keys(c.key)
		b.until("the focus moves", fmt.Sprintf("[...document.querySelectorAll('tbody tr')].indexOf(document.activeElement.closest('tr')) === %d", c.row))
	}
	for i, view := range []string{"granted", "tree", "fleet", "figures", "changes", "history", "holders"} {
		b.keys(strconv.Itoa((i+1)%7 + 1))
		b.until("a key for "+view, fmt.Sprintf("document.getElementById('view').dataset.view === %q && document.getElementById('view').dataset.ready === 'yes' && document.querySelector('nav a[aria-current]').getAttribute('href').startsWith('#/%s')", view, view))
	}

	// Recover by keyboard alone, with a word that it is meant.
	const asks = "document.querySelector('dialog')?.innerText.includes('/app.log') && document.querySelector('dialog').innerText.includes('ingest-1')"
	b.keys("j")
	b.focuses("the first holder", "a.textContent === 'ingest-1'")
	b.keys(kb.Tab)
	b.focuses("its file", "a.textContent === '/app.log'")
	b.runs("mark the row", "document.querySelector('tbody tr').dataset.old = 'yes'")
	b.until("the list is read again", "!document.querySelector('tbody tr').dataset.old")
	b.focuses("its file, as before", "a.textContent === '/app.log'")
	b.keys(kb.Tab)
	b.focuses("its history", "a.textContent === 'history'")
	b.keys(kb.Tab)
	b.focuses("the button", "a.textContent === 'Recover…' && a.closest('tr').innerText.includes('/app.log')")
	b.keys(kb.Enter)
	b.until("it asks", asks)
	b.focuses("what does nothing", "a.textContent === 'Cancel'")
	b.keys(kb.Escape)
	b.until("it asks no more", "document.querySelector('dialog') === null")
	b.focuses("the button again", "a.textContent === 'Recover…'")
	b.keys(kb.Enter)
	b.until("it asks again", asks)
	if got := b.value("document.querySelector('dialog button.danger').disabled"); got != "true" {
		t.Error("a live holder loses a file without a word")
	}
	b.picture("recover")
	if f := holder.File("/app.log"); f.GetAttr().GetOpen() == nil {
		t.Error("it is closed before that was confirmed")
	}
	b.do("back to the word", chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	b.focuses("the word", "a.name === 'force'")
	b.keys(" ")
	b.keys(kb.Tab)
	b.keys(kb.Tab)
	b.focuses("what recovers it", "a.classList.contains('danger') && !a.disabled")
	b.keys(kb.Enter)
	b.until("it says so", "document.getElementById('said').textContent.includes('/app.log is closed')")
	if f := holder.File("/app.log"); f.GetAttr().GetOpen() != nil || f.GetAttr().GetLength() != 8 {
		t.Errorf("%v", f.GetAttr())
	}
	b.until("it is gone from the list", "!"+text+".includes('/app.log')")

	// Who held it, from the file, and what else that client held, from there and from its lease.
	b.view("#/tree/app.log")
	b.link("who held it")
	b.shows("forced by page (user root")
	b.shows("is not kept")
	b.shows("not known: the namenode was away")
	b.link("ingest-1")
	b.until("what ingest-1 held", "document.querySelector('input[name=what]').value === 'ingest-1' && "+rows+" === 2 && "+text+".includes('/app.log')")
	b.picture("history")
	b.view("#/holders")
	b.link("tailer")
	b.until("who waits for which file", "document.querySelector('table[aria-label=\"Who waits\"] tbody')?.innerText.replace(/\\s+/g, ' ').startsWith('waiter-1 user root h pid 1 /live ')")
	b.picture("waits")
	lease := b.value("location.hash")
	b.view("#/holders")
	b.link("ingest-2")
	b.link("what ingest-2 held")
	b.shows("held now")
	b.view("#/history")
	b.keys("/")
	b.until("what is asked for has the focus", "document.activeElement.name === 'what'")
	b.runs("empty it", "document.activeElement.value = ''")
	b.keys("/live\r")
	b.until("who has it", rows+" === 2 && "+text+".includes('tailer')")
	b.view("#/history?lease=nightly")
	b.until("whose it is", rows+" === 2 && "+text+".includes('scheduler')")
	b.view("#/tree/gone")
	b.link("Who held what was there")
	b.until("nothing is known of it", rows+" === 1 && !"+text+".includes('held now')")

	// The tree, and a file that grows.
	b.view("#/tree/")
	b.shows(nasty)
	b.view("#/tree/team/logs")
	b.until("it shows the quota of the folder above", "document.querySelector('table[aria-label=Quotas] tbody')?.innerText.replace(/\\s+/g, ' ').includes('/team 2 of 3 0 B of 1.0 TiB')")
	write(t, admin, "/blocks", 160<<10)
	b.view("#/tree/blocks")
	b.until("it shows its blocks", "document.querySelectorAll('table[aria-label=Blocks] tbody tr')[1]?.innerText.startsWith('65,536\\t64.0 KiB\\t')")
	b.view("#/tree/live")
	b.until("it shows the content", "document.getElementById('content').textContent === 'first line\\n'")
	b.click("#follow")
	b.until("it follows", "document.getElementById('follow').textContent === 'Stop'")
	if err := live.Flush(lw, int64(len("first line\n")), "<b>second</b> line\n"); err != nil {
		t.Fatal(err)
	}
	b.until("it shows what came", "document.getElementById('content').textContent === 'first line\\n<b>second</b> line\\n'")
	b.picture("file")

	// Changes.
	b.view("#/changes")
	b.until("it watches", text+".includes('up to change') && !"+text+".includes('up to change 0')")
	n.Raw(t, "late").Create("/just made")
	b.shows("/just made")
	taker := n.Raw(t, "taker")
	if _, err := taker.NN.Recover(t.Context(), &pb.RecoverRequest{Call: taker.Call(), Caller: taker.Who, At: pb.At("/just made"), Force: true}); err != nil {
		t.Fatal(err)
	}
	b.until("it says why it was closed, and by whom", "[...document.querySelectorAll('tbody tr')].some((r) => r.innerText.includes('closed') && r.innerText.includes('/just made') && r.innerText.includes('forced by taker (user root'))")
	b.choose("text", "taker")
	b.until("nothing else is shown", rows+" === 1")
	b.picture("changes")

	greedy := n.Raw(t, "greedy")
	greedy.Who.User = "greedy"
	greedy.Create("/free/1")
	if _, err := greedy.NN.Create(t.Context(), &pb.CreateRequest{Call: greedy.Call(), Caller: greedy.Who, At: pb.At("/free/2")}); !errors.Is(err, fserror.Retry) {
		t.Errorf("beyond his share: %v", err)
	}
	write(t, admin, "/team/logs/1", 0)
	fallBehind(t, n)
	b.view("#/fleet")
	b.until("who is greedy", "document.querySelector('table[aria-label=\"Greedy clients\"] tbody')?.innerText.replace(/\\s+/g, ' ').includes('user greedy files 1 1 1 0')")
	b.until("who is slow", "document.querySelector('table[aria-label=\"Greedy clients\"] tbody')?.innerText.replace(/\\s+/g, ' ').includes('user sleeper watches 0 0 1 fell behind')")
	b.until("the quota that is used up", "document.querySelector('table[aria-label=\"Quotas that are nearly used up\"] tbody')?.innerText.includes('3 of 3')")
	b.shows("serves alone")
	b.shows("Feature level")
	b.shows("has every change") // the archive
	b.view("#/figures")
	b.until("it plots", "document.querySelectorAll('figure path[d^=M]').length > 3")
	// Of each figure: its title, how many lines are drawn, and how many names they have.
	const plots = "[...document.querySelectorAll('figure')].map((f) => `${f.querySelector('figcaption').innerText}: ${f.querySelectorAll('path[d^=M]').length} of ${f.querySelectorAll('.key li').length}`).join('; ')"
	b.until("each name of each figure has a line", plots+fmt.Sprintf(" === %q", strings.Join([]string{
		"Calls a second: 6 of 6", "Time of 99 of 100 calls: 6 of 6", "Time of half of the calls: 6 of 6", "Journal: changes a second: 1 of 1",
		"Journal: changes that are not durable, or not here yet: 2 of 2", "Journal: bytes: 2 of 2", "Leases: 4 of 4", "Leases that expired, a second: 1 of 1",
		"Bytes in memory, in the trash and to be deleted: 3 of 3", "Connections and watches: 2 of 2", "Refused or slow, a second: 4 of 4",
	}, "; ")))

	// On a phone, in the dark.
	b.do("a phone in the dark", chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile),
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
			return err
		}))
	for _, view := range []string{"#/holders", lease, "#/granted", "#/tree/", "#/tree/live", "#/tree/blocks", "#/tree/team/logs", "#/fleet", "#/figures", "#/changes", "#/history?path=%2Fapp.log"} {
		b.view(view)
		if got, err := strconv.Atoi(b.value("document.documentElement.scrollWidth")); err != nil || got > 360 {
			t.Errorf("%s is %d pixels wide (%v)", view, got, err)
		}
	}
	if got := b.value("getComputedStyle(document.body).backgroundColor"); got != "rgb(20, 24, 28)" {
		t.Errorf("in the dark the page is %s", got)
	}
	b.view("#/holders")
	b.picture("phone")

	// Who is not who he says has no page: here, nobody.
	b.runs("sign out", "localStorage.clear(); sessionStorage.clear(); location.reload()")
	b.until("it asks who that is", "document.querySelector('dialog')?.innerText.includes('Say as whom')")
	b.end()
}

// fallBehind has a user's watch fall behind what is kept: for a while he reads nothing.
func fallBehind(t *testing.T, n *env.Namenode) {
	t.Helper()
	slow, maker := n.Raw(t, "sleeper"), n.Raw(t, "maker")
	slow.Who.User = "sleeper"
	w, err := slow.NN.Watch(t.Context(), &pb.WatchRequest{Caller: slow.Who, Path: "/free", Recursive: true})
	if err == nil {
		_, err = w.Recv() // it has begun
	}
	const at, together = 100, 64
	for i := 0; err == nil && i < at*together; i += together { // a few MiB: more than the line takes
		tx := &pb.TransactRequest{Call: maker.Call(), Caller: maker.Who}
		for k := range together {
			tx.Ops = append(tx.Ops, &pb.TxOp{Path: fmt.Sprintf("/free/%0200d", i+k), Op: &pb.TxOp_Create{Create: &pb.TxFile{}}})
		}
		_, err = maker.NN.Transact(t.Context(), tx)
	}
	for err == nil {
		_, err = w.Recv()
	}
	if !errors.Is(wire.FromStatus(err), fserror.TooOld) {
		t.Fatal(err)
	}
}

// write makes a file, or replaces it, of so many bytes.
func write(t *testing.T, fs *client.FS, path string, size int) {
	t.Helper()
	w, err := fs.Create(t.Context(), path, client.WithOverwrite())
	if err == nil {
		_, err = w.Write(make([]byte, size))
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// forget makes a time of which the history of leases knows nothing.
func forget(t *testing.T, n *env.Namenode, fs *client.FS) {
	t.Helper()
	write(t, fs, "/before", 0)
	n.Restart(t, func(c *namenode.Config) { c.LeaseHistory = -1 })
	write(t, fs, "/unknown", 0)
	if _, err := fs.Admin().Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.Restart(t, func(c *namenode.Config) { c.LeaseHistory = 0 })
}

// disk is one on which there is room, or not.
type disk struct {
	vfs.FS
	full atomic.Bool
}

func (d *disk) Usage(dir string) (free, total int64, err error) {
	if free, total, err = d.FS.Usage(dir); d.full.Load() {
		free = 0
	}
	return free, total, err
}

// TestPageOfAFleet: a standby's page tells who is there and whether it could take over, and leads to
// the active one's, which tells how far a standby is behind that is cut off from ZooKeeper.
func TestPageOfAFleet(t *testing.T) {
	l, err := net.Listen("tcp", spawn.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	zk := zkmodel.New(zkmodel.Config{Servers: 1, Tick: time.Minute}) // for sessions that outlive a busy machine, and being cut off
	t.Cleanup(func() { _ = l.Close(); zk.Close() })
	go func() { _ = zk.Server(0).Serve(l) }() // until the listener is closed
	way, err := zkproxy.New(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = way.Close() })
	blocks := "file://" + t.TempDir()
	fleet := func(zooKeeper string) func(c *namenode.Config) {
		return func(c *namenode.Config) {
			c.Blocks = blocks
			c.HA = &namenode.HA{ZooKeeper: []string{zooKeeper}, Name: "fleet", SessionTimeout: 10 * time.Minute}
		}
	}
	active := env.Start(t, fleet(l.Addr().String()))
	env.Eventually(t, "one is active", func() bool { return active.Role() == "active" })
	writer := active.Raw(t, "writer")
	writer.Create("/f")
	its := &disk{FS: vfs.OS()}
	standby := env.Start(t, fleet(way.Addr()), func(c *namenode.Config) { c.FS = its })
	env.Eventually(t, "the other one is a standby", func() bool { return standby.Role() == "standby" })
	b := open(t, standby)
	b.shows("the active one is " + active.Addr())
	b.until("it leads to the active one", fmt.Sprintf("document.getElementById('active')?.href === 'http://%s/page/'", active.HTTPAddr()))
	b.keys("4")
	const members = "[...document.querySelectorAll('table[aria-label=Namenodes] tbody tr')].map((r) => r.innerText.replace(/\\s+/g, ' '))"
	b.until("who is there", fmt.Sprintf("((m) => m.length === 2 && m[0].startsWith('%s active yes ') && m[1].startsWith('%s standby nothing yes '))(%s)", active.Addr(), standby.Addr(), members))
	b.shows("1 could take over")
	its.full.Store(true)
	b.until("why it is not fit", fmt.Sprintf("/^%s standby nothing no: .* disk .*/.test(%s[1])", standby.Addr(), members))
	b.shows("No other namenode could take over")
	b.picture("fleet")
	its.full.Store(false)
	b.shows("1 could take over")
	b.end()
	b.click("#active")
	b.until("that is the active one's page", fmt.Sprintf("location.host === %q", active.HTTPAddr()))
	b.signIn("root")
	b.shows("/f")
	way.Down()
	const behind = 12
	for i := range behind {
		writer.Make(fmt.Sprint("/late-", i))
	}
	b.keys("4")
	b.until("how far it is behind", fmt.Sprintf("((m) => m[1]?.startsWith('%s ') && m[1].match(/ standby (\\d+) changes yes /)?.[1] >= %d)(%s)", standby.Addr(), behind, members))
	way.Up()
	b.until("it has followed", fmt.Sprintf("%s[1].startsWith('%s standby nothing yes ')", members, standby.Addr()))
}

// TestPageIdleBar: the bar of a lease grows as far as the line with the soft limit, and to its end with the
// hard one.
func TestPageIdleBar(t *testing.T) {
	clk := new(env.LeapingClock)
	n := env.Start(t, patient, func(c *namenode.Config) { c.Clock = clk })
	n.Raw(t, "ingest").Create("/app.log")
	b := open(t, n)
	b.signIn("root")
	// Per cent of the bar as it is drawn: how long it is, and where the line is.
	const drawn = `((bar) => {
		const all = bar.getBoundingClientRect(), part = (x) => (100 * (x - all.left)) / all.width;
		return [bar.querySelector("rect").getAttribute("class"), part(bar.querySelector("rect").getBoundingClientRect().right), part(bar.querySelector("line.tick").getBoundingClientRect().left)];
	})(document.querySelector("tbody tr svg.bar"))`
	for _, c := range []struct {
		leap  time.Duration
		class string
		least float64
		says  string
	}{ // of 20 minutes and an hour; one of the first is 2.5 per cent, one of the others 1.25
		{0, "live", 0, "can be taken in"},
		{10 * time.Minute, "live", 25, "can be taken in"},
		{15 * time.Minute, "soft", 56.25, "can be taken now"},
		{30 * time.Minute, "soft", 93.75, "can be taken now"},
	} {
		clk.Leap(c.leap)
		b.until(fmt.Sprintf("the bar is %s and %.2f per cent long", c.class, c.least), // or of some minutes more
			fmt.Sprintf("(([c, long, line]) => c === %q && long >= %g - 0.1 && long < %g + 6.25 && Math.abs(line - 50) < 1)(%s)", c.class, c.least, c.least, drawn))
		b.shows(c.says)
	}
	b.end()
}

// TestPageOfMany: with many leases and a folder of many names each answer is small.
func TestPageOfMany(t *testing.T) {
	leases, names := size.Of(2_000, 100_000), size.Of(6_400, 1_000_000)
	n := env.Start(t)
	r := n.Raw(t, "maker")
	if _, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At("/many")}); err != nil {
		t.Fatal(err)
	}
	const together = 64 // names of a transaction
	fill(t, n, names/together, func(r *env.Raw, i int) error {
		tx := &pb.TransactRequest{Call: r.Call(), Caller: r.Who}
		for k := range together {
			tx.Ops = append(tx.Ops, &pb.TxOp{Path: fmt.Sprintf("/many/name-%07d", together*i+k), Op: &pb.TxOp_Create{Create: &pb.TxFile{}}})
		}
		_, err := r.NN.Transact(t.Context(), tx)
		return err
	})
	names -= names % together
	hold(t, n, leases)
	batch := n.Client(t, env.Named("batch"))
	for range 55 {
		write(t, batch, "/batch", 0)
	}
	b := open(t, n)
	b.signIn("root")
	b.until("a page of holders", "document.querySelectorAll('tbody tr').length === 50")
	b.keys("n")
	b.shows("page 2")
	b.keys("p")
	b.shows("page 1")
	last := fmt.Sprintf("client-%06d", leases-1)
	b.filter(last)
	b.until("the last one is found", "document.querySelectorAll('tbody tr').length === 1 && "+text+".includes('"+last+"')")
	b.view("#/history?path=%2Fbatch")
	b.until("a page of its past", rows+" === 50 && "+text+".includes('page 1')")
	b.keys("n")
	b.until("the rest of its past", rows+" === 5 && "+text+".includes('page 2')")
	b.keys("p")
	b.until("back", rows+" === 50 && "+text+".includes('page 1')")
	b.view("#/tree/many")
	b.until("a page of names", "document.querySelectorAll('tbody tr').length === 100")
	b.do("go to a name", chromedp.SendKeys(chromedp.CSS("input[name=jump]"), fmt.Sprintf("name-%07d\r", names-5)))
	b.until("the last names", fmt.Sprintf("document.querySelectorAll('tbody tr').length === 5 && %s.includes('name-%07d')", text, names-1))
	for range 10 { // for the figures
		b.view("#/holders")
		b.keys("n")
		b.shows("page 2")
		b.view("#/tree/many")
		b.until("a page of names", rows+" === 100")
	}
	b.view("#/figures")
	b.until("it plots what was made", "document.querySelector('figure path')?.getAttribute('d').includes('L') && "+text+".includes('create')")
	b.picture("figures")
	b.mu.Lock()
	if b.most > 32<<10 {
		t.Errorf("an answer has %.0f bytes", b.most)
	}
	t.Logf("%d leases and %d names; the largest answer has %.0f bytes", leases, names, b.most)
	b.mu.Unlock()
	t.Log(b.value(`Object.entries(Object.groupBy(performance.getEntriesByType("resource").filter((e) => e.name.includes("/api/")), (e) => e.name.split("/api/")[1])).map(([name, all]) => {
		const ms = all.map((e) => e.duration).sort((a, b) => a - b);
		return name + ": " + ms.length + ", half within " + ms[ms.length >> 1].toFixed(1) + " ms, all within " + ms.at(-1).toFixed(0) + " ms, at most " + Math.max(...all.map((e) => e.encodedBodySize)) + " bytes";
	}).join("\n")`))
	b.end()
}

// hold makes so many leases, each of a client of its own with a file.
func hold(t *testing.T, n *env.Namenode, leases int) {
	t.Helper()
	fill(t, n, leases, func(r *env.Raw, i int) error {
		session := fmt.Appendf(nil, "session-%08d", i)
		who := &pb.Caller{User: "root", Client: fmt.Sprintf("client-%06d", i), Session: session, Host: "h", Pid: 1}
		_, err := r.NN.Create(t.Context(), &pb.CreateRequest{Call: &pb.CallId{Session: session, Seq: 1}, Caller: who, At: pb.At(fmt.Sprintf("/open-%06d", i))})
		return err
	})
}

// fill makes many calls, as many at once as share an fsync.
func fill(t *testing.T, n *env.Namenode, count int, call func(r *env.Raw, i int) error) {
	t.Helper()
	const at = 128
	var g errgroup.Group
	for k := range at {
		r := n.Raw(t, fmt.Sprint("fills-", k))
		g.Go(func() error {
			for i := k; i < count; i += at {
				if err := call(r, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}
