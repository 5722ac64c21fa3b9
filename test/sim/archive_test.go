package sim

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/client/upgrade"
	"github.com/leasefs/leasefs/internal/blockstore/local"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/offline"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/env/size"
	"github.com/leasefs/leasefs/test/sim/s3model"
)

// thing is what the model of a namespace has at a path.
type thing struct {
	kind    calls.Type
	mode    fs.FileMode
	content string // of a file; where a link leads to
	label   string // its extended attribute
}

// label is the name of the one extended attribute that things have.
const label = "user.label"

// moment is when a call of the one client had ended.
type moment struct {
	began, ended time.Time // of the call
	txid         uint64    // a record behind it that is durable, before those of the next call
	sum          [sha256.Size]byte
	model        map[string]thing
	writes       string // a file that the call wrote by several records; empty: one record was all
}

// day is a fleet whose journal is archived, and a client that changes the namespace.
type day struct {
	*World
	t      *testing.T
	c      *worker
	rand   *rand.Rand
	now    map[string]thing
	past   []moment
	wrong  bool // clocks have been wrong since
	rewind offline.Config
	id     [16]byte
	dir    string
	made   int // snapshots
	done   int // restores
	before int // moments that were older than what is kept, and restored
}

// TestArchiveKeepsUp: while the store answers, the archive is seconds behind at most, whatever is written,
// while bases are put, too.
func TestArchiveKeepsUp(t *testing.T) {
	const most = 5 * time.Second // it looks every two
	synctest.Test(t, func(t *testing.T) {
		w := calmWorld(t, Config{Seed: 20, S3: true, Archive: 4 * time.Minute}, 3, func(c *worker) { c.plain = true })
		end := time.Now().Add(2 * time.Minute)
		var writers sync.WaitGroup
		for i, c := range w.clients[:3] {
			writers.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					if err := c.fs.WriteFile(t.Context(), fmt.Sprintf("/f%d-%d", i, n%100), []byte(strings.Repeat("x", n)), client.WithOverwrite()); err != nil {
						t.Errorf("it does not write: %v", err)
						return
					}
					<-time.After(50 * time.Millisecond)
				}
			})
		}
		lag, behind := time.Duration(0), 0
		for time.Now().Before(end) {
			list, err := w.clients[0].fs.Status(t.Context())
			must(t, err)
			for _, st := range list {
				if a := st.Archive; a != nil && a.TxID > 0 {
					if a.Problem != "" {
						t.Errorf("nothing is archived: %s", a.Problem)
					}
					lag = max(lag, a.Lag)
					if a.Lag > 0 {
						behind++
					}
				}
			}
			<-time.After(137 * time.Millisecond)
		}
		writers.Wait()
		if lag > most || behind < 100 {
			t.Errorf("the archive was %s behind; it was seen behind %d times", lag, behind)
		}
		t.Logf("the archive was %s behind at most, and seen behind %d times", lag, behind)
		w.check(t)
	})
}

// think is about how long the client thinks between two calls.
const think = 40 * time.Second

// TestADayIsRestored: of a day of changes, over failovers, crashes of all, and troubles of
// the store, with images, bases and the removal of what is older than is kept, 1,000 random
// moments (daily some of a shorter day) are restored as the model of the namespace has them.
func TestADayIsRestored(t *testing.T) {
	for seed := range size.Of(uint64(1), 2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { liveADay(t, seed, size.Of(4, 24), size.Of(10, 1000/24+1)) })
		})
	}
}

// liveADay is a day of so many hours, in each of which moments are restored. Those of a third of it
// are kept.
func liveADay(t *testing.T, seed uint64, hours, moments int) {
	kept := time.Duration(hours) * time.Hour / 3
	w := calmWorld(t, Config{Seed: seed, S3: seed%2 == 0, Archive: kept}, 1, func(c *worker) { c.plain = true })
	d := &day{World: w, t: t, c: w.clients[0], rand: rand.New(rand.NewPCG(seed, 20)), now: map[string]thing{"/": {kind: calls.TypeDir, mode: 0o755}}, dir: t.TempDir()}
	keeper := newNode(w, len(w.nodes)) // the machine on which an operator restores
	how, err := keeper.config(&disks{own: keeper.disk, shared: w.shared}).Offline()
	must(t, err)
	d.rewind, d.id = how, w.theActive().tree().NamespaceID()
	d.rewind.Logger = slog.New(slog.DiscardHandler)
	d.note(time.Now(), "")
	for hour := range hours {
		for end := time.Now().Add(time.Hour); time.Now().Before(end); {
			d.change()
			<-time.After(time.Duration(d.rand.Int64N(int64(2 * think))))
			if d.rand.IntN(40) == 0 {
				d.fail()
			}
		}
		if hour == hours/2 {
			_, err := upgrade.Finish(t.Context(), d.c.fs)
			must(t, err)
			must(t, snapshots.Allow(t.Context(), d.c.fs, "/"))
			d.note(time.Now(), "")
		}
		if hour == hours*2/3 {
			d.setClocks()
		}
		d.restoreSome(moments)
		if t.Failed() {
			break
		}
	}
	t.Logf("%d calls, %d records, term %d; %d moments restored, and %d that were older than what is kept", len(d.past), d.past[len(d.past)-1].txid, w.theActive().tree().Term(), d.done, d.before)
	w.check(t)
}

// note keeps the moment at which a call that began then has ended.
func (d *day) note(began time.Time, writes string) {
	d.t.Helper()
	ended := time.Now()
	d.waitActive(d.t.Context())
	last, _ := d.theActive().tree().Last()
	for tree := d.followed(last); ; tree = d.followed(last) {
		if tree == nil {
			<-time.After(100 * time.Millisecond)
			continue
		}
		m := moment{began: began, ended: ended, model: maps.Clone(d.now), writes: writes, sum: sumOf(d.t, tree)}
		m.txid, _ = tree.Last()
		d.past = append(d.past, m)
		return
	}
}

// followed is the tree of a standby that has a record: all that it has is durable. Nil if none has.
func (d *day) followed(txid uint64) *namespace.Tree {
	for _, n := range d.nodes {
		if n.active() {
			continue
		}
		if t := n.tree(); t != nil {
			if last, _ := t.Last(); last >= txid {
				return t
			}
		}
	}
	return nil
}

func sumOf(t *testing.T, tree *namespace.Tree) [sha256.Size]byte {
	t.Helper()
	h := sha256.New()
	must(t, tree.WriteImage(h))
	return [sha256.Size]byte(h.Sum(nil))
}

// some is a path of the model of a kind, other than the root; empty: there is none.
func (d *day) some(kind calls.Type) string {
	var all []string
	for path, a := range d.now {
		if a.kind == kind && path != "/" {
			all = append(all, path)
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return all[d.rand.IntN(len(all))]
}

// free is a path of which there is nothing, in a directory; empty: its name is taken.
func (d *day) free(dir, prefix string, most int) string {
	path := strings.TrimSuffix(dir, "/") + "/" + prefix + fmt.Sprint(d.rand.IntN(most))
	if _, taken := d.now[path]; taken {
		return ""
	}
	return path
}

// change is a call that changes something at random, or none if what it takes is not there.
func (d *day) change() {
	d.t.Helper()
	ctx, fsys, began := d.t.Context(), d.c.fs, time.Now()
	dir, file := d.some(calls.TypeDir), d.some(calls.TypeFile)
	writes, err := "", error(nil)
	switch d.rand.IntN(12) {
	case 0:
		if dir = d.free("/", "d", 8); dir != "" {
			err = fsys.Mkdir(ctx, dir, 0o755)
			d.now[dir] = thing{kind: calls.TypeDir, mode: 0o755}
		}
	case 1, 2, 3:
		if dir == "" {
			return
		}
		writes = strings.TrimSuffix(dir, "/") + fmt.Sprintf("/f%d", d.rand.IntN(6))
		text := d.text(2000)
		if d.rand.IntN(4) == 0 {
			text = d.text(2 * blockSize)
		}
		err = fsys.WriteFile(ctx, writes, []byte(text), client.WithMode(0o644), client.WithOverwrite())
		d.now[writes] = thing{kind: calls.TypeFile, mode: 0o644, content: text}
	case 4, 5:
		if file == "" {
			return
		}
		more := d.text(3000)
		var w *client.Writer
		if w, err = fsys.Append(ctx, file); err == nil {
			_, _ = w.Write([]byte(more)) // Close tells of its error, too
			err = w.Close()
		}
		a := d.now[file]
		a.content += more
		d.now[file], writes = a, file
	case 6:
		from := dir
		if file != "" && d.rand.IntN(2) == 0 {
			from = file
		}
		to := d.free("/", "d", 8)
		if from == file && dir != "" {
			to = d.free(dir, "f", 6)
		}
		if from == "" || to == "" {
			return
		}
		err = fsys.Rename(ctx, from, to, false)
		d.move(from, to)
	case 7:
		path := dir
		if d.rand.IntN(3) > 0 {
			path = file
		}
		if path == "" {
			return
		}
		err = fsys.RemoveAll(ctx, path)
		d.move(path, "")
	case 8:
		path := cmpOr(file, dir)
		if path == "" {
			return
		}
		a := d.now[path]
		a.mode = fs.FileMode(0o700 | d.rand.IntN(0o100)) //nolint:gosec // small
		err = fsys.Chmod(ctx, path, a.mode)
		d.now[path] = a
	case 9:
		if file == "" {
			return
		}
		a := d.now[file]
		a.label = fmt.Sprint(len(d.past))
		err = fsys.Xattrs(file).Set(ctx, label, []byte(a.label), client.XattrAny)
		d.now[file] = a
	case 10:
		if dir == "" {
			return
		}
		if path := d.free(dir, "l", 3); path != "" {
			err = fsys.Symlink(ctx, "../"+path, path)
			d.now[path] = thing{kind: calls.TypeSymlink, content: "../" + path}
		}
	case 11:
		err = d.snapshot()
	}
	if err != nil {
		d.t.Fatalf("after %s: %v", time.Since(d.began), err)
	}
	d.note(began, writes)
}

// snapshot makes one of all, or deletes one, once the namespace may have some.
func (d *day) snapshot() error {
	switch {
	case d.theActive().tree().Level().Level < 2:
		return nil
	case d.made > 2 && d.rand.IntN(2) == 0:
		d.made--
		return snapshots.Delete(d.t.Context(), d.c.fs, "/", fmt.Sprint("s", d.made))
	}
	d.made++
	_, err := snapshots.Make(d.t.Context(), d.c.fs, "/", fmt.Sprint("s", d.made-1))
	return err
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// text is one that no other file has, of up to so many bytes.
func (d *day) text(most int) string {
	word := fmt.Sprintf("%d ", len(d.past))
	return strings.Repeat(word, 1+d.rand.IntN(most)/len(word))
}

// move has all that is at a path, and below it, elsewhere; nowhere if to is empty.
func (d *day) move(from, to string) {
	for path, a := range maps.Clone(d.now) {
		if rest, below := strings.CutPrefix(path, from); below && (rest == "" || rest[0] == '/') {
			delete(d.now, path)
			if to != "" {
				d.now[to+rest] = a
			}
		}
	}
}

// fail is something that goes wrong, or two things, and heals; the client changes things meanwhile.
func (d *day) fail() {
	d.t.Helper()
	some := func() { // of the tree alone: the store may be away
		began := time.Now()
		if dir := d.free("/", "e", 1000); dir != "" {
			must(d.t, d.c.fs.Mkdir(d.t.Context(), dir, 0o700))
			d.now[dir] = thing{kind: calls.TypeDir, mode: 0o700}
			d.note(began, "")
			began = time.Now()
			must(d.t, d.c.fs.Remove(d.t.Context(), dir))
			delete(d.now, dir)
			d.note(began, "")
		}
	}
	away := func(share float64) (heal func()) { return func() {} }
	if d.store != nil {
		away = func(share float64) (heal func()) {
			d.store.SetTrouble(share)
			return func() { d.store.SetTrouble(0) }
		}
	}
	switch d.rand.IntN(8) {
	case 0:
		d.succeed()
	case 1:
		_, _ = d.c.fs.Admin().Failover(d.t.Context()) // there may be none to take over yet
	case 2:
		for _, n := range d.nodes {
			n.kill(crashfs.Strict)
		}
		for _, n := range d.nodes {
			n.start()
		}
	case 3:
		heal := away(1)
		for range 1 + d.rand.IntN(10) {
			some()
			<-time.After(time.Duration(d.rand.Int64N(int64(4 * time.Minute))))
		}
		heal()
	case 4: // what is not archived is archived by another
		healed := make(chan struct{})
		heal := away(0.8)
		time.AfterFunc(20*time.Second, func() { heal(); close(healed) })
		some()
		<-time.After(time.Duration(d.rand.Int64N(int64(5 * time.Second))))
		d.succeed()
		some()
		<-healed
	case 5:
		if d.store != nil {
			d.store.Lose(s3model.LostReply, 1+d.rand.IntN(3))
			d.store.Late(1+d.rand.IntN(3), time.Duration(d.rand.Int64N(int64(latestPut))))
		}
		some()
	case 6:
		if d.store != nil {
			d.store.SetListLag(10 * time.Second)
			d.succeed()
			some()
			<-time.After(time.Duration(d.rand.Int64N(int64(time.Minute))))
			d.store.SetListLag(0)
		}
	case 7:
		d.zk.Elect(time.Duration(1+d.rand.IntN(8)) * time.Second)
		some()
	}
	d.waitActive(d.t.Context())
}

// setClocks has the clocks of the namenodes differ from now on.
func (d *day) setClocks() {
	d.wrong = true
	skews := d.skews()
	for i, n := range d.nodes {
		if i > 0 {
			n.clock.SetSkew(skews[d.rand.IntN(len(skews)-1)])
		}
	}
}

// restoreSome restores that many moments of the time that is kept, and some older ones.
func (d *day) restoreSome(n int) {
	d.t.Helper()
	newest := d.past[len(d.past)-1]
	for began := time.Now(); ; <-time.After(time.Second) {
		if last := d.archived(); last >= newest.txid {
			break
		} else if time.Since(began) > 3*time.Minute {
			d.t.Fatalf("only %d of %d records are archived", last, newest.txid)
		}
	}
	oldest := time.Now().Add(time.Minute - d.cfg.Archive)
	first := max(0, slices.IndexFunc(d.past, func(m moment) bool { return m.ended.After(oldest) }))
	for range n {
		i := first + d.rand.IntN(len(d.past)-first)
		d.restore(i, true)
	}
	for range n / 10 {
		if first > 0 {
			d.restore(d.rand.IntN(first), false)
		}
	}
}

// archived is the last record that the archive has.
func (d *day) archived() uint64 {
	d.t.Helper()
	last, err := offline.Rewind(d.t.Context(), offline.Rewinding{Config: d.rewind, Dir: filepath.Join(d.dir, "newest"), TreeOnly: true})
	must(d.t, err)
	must(d.t, os.RemoveAll(filepath.Join(d.dir, "newest")))
	return last.TxID
}

// restore restores what was between a call and the next one, by the number of a record or by time.
// kept: it is of the time that is kept.
func (d *day) restore(i int, kept bool) {
	d.t.Helper()
	m, to, at := d.past[i], i, archive.At{}
	exact := false
	how := d.rand.IntN(3)
	if d.wrong { // what a time of day names is told by numbers alone
		how = d.rand.IntN(2)
	}
	switch {
	case i == len(d.past)-1 || how == 0:
		at.TxID, exact = m.txid, true
	case how == 1:
		next := d.past[i+1]
		at.TxID = m.txid + d.rand.Uint64N(next.txid-m.txid+1)
		exact = at.TxID == m.txid
		if !exact {
			to++
		}
	default:
		const sure = 2 * time.Second // between a record's time and the call's
		at.Time = m.ended.Add(time.Duration(d.rand.Int64N(int64(d.past[i+1].ended.Sub(m.ended)) + 1)))
		for i > 0 && d.past[i].ended.Add(sure).After(at.Time) {
			i--
		}
		for to+1 < len(d.past) && d.past[to+1].began.Add(-sure).Before(at.Time) {
			to++
		}
	}
	dir := filepath.Join(d.dir, fmt.Sprint(d.done))
	done, err := offline.Rewind(d.t.Context(), offline.Rewinding{Config: d.rewind, At: at, Dir: dir})
	defer func() { _ = os.RemoveAll(dir) }()
	what := fmt.Sprintf("%+v, %s after the begin, restored %s after it", at, m.ended.Sub(d.began), time.Since(d.began))
	if !kept && (errors.Is(err, fserror.NotFound) || errors.Is(err, fserror.Damaged)) {
		return
	}
	if err != nil {
		d.t.Errorf("%s: %v", what, err)
		return
	}
	if d.done++; !kept {
		d.before++
	}
	if at.TxID > 0 && done.TxID != at.TxID || !at.Time.IsZero() && done.Time.After(at.Time) {
		d.t.Errorf("%s: it is record %d of %s", what, done.TxID, done.Time)
	}
	tree, got := d.read(dir, done.TxID)
	if exact && sumOf(d.t, tree) != m.sum {
		d.t.Errorf("%s: the tree is another one", what)
	}
	why := ""
	for ; i <= to; i++ {
		if why = d.past[i].differs(got); why == "" || i < to && d.past[i].onTheWay(&d.past[i+1], got) {
			return
		}
	}
	d.t.Errorf("%s: %s", what, why)
}

// differs tells what is otherwise than in the model.
func (m *moment) differs(got map[string]thing) string {
	for path, want := range m.model {
		if a, there := got[path]; !there {
			return path + " is missing"
		} else if a != want {
			return fmt.Sprintf("%s is %s, not %s", path, a, want)
		}
	}
	for path, a := range got {
		if _, there := m.model[path]; !there {
			return fmt.Sprintf("%s is there, %s", path, a)
		}
	}
	return ""
}

// onTheWay reports whether it is as in the model but for the file that the next call writes by
// several records: that has a part of what is added, or is made beside its place until it is whole.
func (m *moment) onTheWay(next *moment, got map[string]thing) bool {
	got = maps.Clone(got)
	maps.DeleteFunc(got, func(path string, _ thing) bool { return strings.Contains(path, fspath.TempInfix) })
	a, there := got[next.writes]
	if was, is := m.model[next.writes].content, next.model[next.writes].content; there && strings.HasPrefix(a.content, was) && strings.HasPrefix(is, a.content) {
		a.content = was
		got[next.writes] = a
	}
	return next.writes != "" && m.differs(got) == ""
}

func (a thing) String() string {
	return fmt.Sprintf("kind %d, mode %o, %d bytes (%.20q), %q", a.kind, a.mode, len(a.content), a.content, a.label)
}

// read is what a backup has: each block is verified, and what is shown of the tree is the model's.
func (d *day) read(dir string, txid uint64) (*namespace.Tree, map[string]thing) {
	d.t.Helper()
	report, err := offline.VerifyBackup(d.t.Context(), vfs.OS(), dir, false, func(p offline.BackupProblem) error {
		d.t.Errorf("record %d: %+v", txid, p)
		return nil
	}, nil)
	if err != nil || report.TxID != txid {
		d.t.Fatalf("record %d: %+v, %v", txid, report, err)
	}
	folder := &images.Folder{FS: vfs.OS(), Dir: filepath.Join(dir, datadir.ImageDir), Log: d.rewind.Logger}
	tree, err := images.Read(d.t.Context(), folder, images.Image{TxID: txid, Name: images.FileName(txid)})
	must(d.t, err)
	got := map[string]thing{}
	must(d.t, tree.Walk(namespace.RootID, func(path []byte, a namespace.Attr) error {
		is := thing{kind: a.Type, mode: fs.FileMode(a.Mode), content: a.LinkTarget}
		if a.Type == calls.TypeSymlink {
			is.mode = 0
		}
		all, err := tree.Xattrs(nil, calls.Inode(a.ID))
		must(d.t, err)
		for _, x := range all {
			is.label += string(x.Value)
		}
		if a.Type == calls.TypeFile {
			is.content = d.content(dir, tree, a.ID)
		}
		got[string(path)] = is
		return nil
	}))
	return tree, got
}

// content is that of a file in a backup.
func (d *day) content(dir string, tree *namespace.Tree, id namespace.InodeID) string {
	d.t.Helper()
	f, err := tree.File(nil, calls.Inode(id))
	must(d.t, err)
	var b bytes.Buffer
	for _, block := range f.Blocks {
		raw, err := os.ReadFile(filepath.Join(dir, datadir.BlocksDir, local.FileName(d.id, block.Key)))
		must(d.t, err)
		b.Write(raw[:block.Used])
	}
	b.Write(f.Tail)
	return b.String()
}

// Soon after the feature level was raised there is an image of the new level.
func TestRaisedLevelsHaveAnImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t, 1, func(c *worker) { c.plain = true })
		<-time.After(10 * time.Second)
		before, _ := w.theActive().tree().Last()
		if images := w.theActive().tree().Images(); len(images) > 0 && images[len(images)-1].TxID >= before {
			t.Fatal("there is an image already")
		}
		_, err := upgrade.Finish(t.Context(), w.clients[0].fs)
		must(t, err)
		<-time.After(10 * time.Second)
		if images := w.theActive().tree().Images(); len(images) == 0 || images[len(images)-1].TxID <= before {
			t.Errorf("the images are %+v, and the level was raised after record %d", images, before)
		}
		w.check(t)
	})
}
