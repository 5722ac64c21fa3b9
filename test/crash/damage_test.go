package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/env/size"
)

// evening is the disk of a machine that was switched off after a whole day, and
// what is on it.
func evening(t *testing.T, d day) *run {
	t.Helper()
	r := &run{day: d.name, opts: d.opts}
	if err := r.play(d.script); err != nil {
		t.Fatal(err)
	}
	r.disk = r.disk.Crash(crashfs.Strict)
	r.m = nil
	return r
}

// afternoon is the disk of a machine that was switched off before the last
// images were made, so that much is in the journal.
func afternoon(t *testing.T, d day) *run {
	t.Helper()
	r := &run{day: d.name, opts: d.opts}
	err := r.play(func(r *run) {
		d.script(r)
		r.settle(r.m, r.want)
		r.kept = r.disk.Clone().Crash(crashfs.Strict)
		r.known = r.want.clone()
	})
	if err != nil {
		t.Fatal(err)
	}
	r.disk, r.want, r.m = r.kept, r.known, nil
	return r
}

// damage is one thing that happened to a disk at night.
type damage struct {
	what string
	do   func(*crashfs.FS) error
}

func flip(name string, at int64, bit uint) damage {
	return damage{fmt.Sprintf("%s with byte %d bit %d flipped", name, at, bit), func(d *crashfs.FS) error { return d.CorruptBit(name, at, bit) }}
}

func lose(name string) damage {
	return damage{name + " gone", func(d *crashfs.FS) error {
		return errors.Join(d.Remove(name), d.SyncDir(path.Dir(name)))
	}}
}

func shorten(name string, by int64) damage {
	return damage{fmt.Sprintf("%s shorter by %d", name, by), func(d *crashfs.FS) error {
		n, err := length(d, name)
		if err != nil {
			return err
		}
		f, err := d.OpenWrite(name)
		if err != nil {
			return err
		}
		return errors.Join(f.Truncate(max(0, n-by)), f.Sync(), f.Close())
	}}
}

// length is that of a file, in a segment without the room ahead.
func length(d *crashfs.FS, name string) (int64, error) {
	f, err := d.Open(name)
	if err != nil {
		return 0, err
	}
	b, err := io.ReadAll(f)
	if strings.HasSuffix(name, ".log") {
		b = bytes.TrimRight(b, "\x00")
	}
	return int64(len(b)), errors.Join(err, f.Close())
}

// flips are some of all bits of a file, the room ahead in a segment included.
func flips(t *testing.T, d *crashfs.FS, name string, stride int64) []damage {
	t.Helper()
	in, err := d.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	var out []damage
	for at := int64(0); at < in.Size(); at += stride {
		out = append(out, flip(name, at, uint(at%8)))
	}
	return out
}

// morning is what became of a start on a damaged disk.
type morning struct {
	err error  // the start was refused, or something could not be read
	m   *model // nil if it was
	log *logbook
	is  string // how the state differs from the evening's, ""
}

func (r *run) wake(d damage) (out morning, err error) {
	err = r.guard(func() {
		disk := r.disk.Clone()
		if err := d.do(disk); err != nil {
			r.failf("%s: %v", d.what, err)
		}
		m, err := boot(disk, r.wall, r.opts...)
		out.err, out.log = err, m.log
		if err != nil {
			return
		}
		defer r.stop(m, false)
		if out.m, out.err = m.state(); out.err == nil {
			out.is = differs(r.want, out.m)
		}
	})
	return out, err
}

func files(t *testing.T, d *crashfs.FS, dir, suffix string) []string {
	t.Helper()
	var out []string
	if err := walkDisk(d, dataDir+"/"+dir, func(name string) {
		if strings.HasSuffix(name, suffix) {
			out = append(out, name)
		}
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	if len(out) == 0 {
		t.Fatalf("no %s in %s", suffix, dir)
	}
	return out
}

// stride is n in full size, and longer else.
func stride(n int64) int64 { return size.Of(15*n+1, n) }

// TestDamagedImage: the older image and the journal give the same state.
func TestDamagedImage(t *testing.T) {
	t.Parallel()
	for _, d := range days {
		r := evening(t, d)
		images := files(t, r.disk, "image", ".img")
		if len(images) != 2 {
			t.Fatalf("images %v", images)
		}
		newest := images[1]
		jobs := append(flips(t, r.disk, newest, stride(9)), shorten(newest, 1), shorten(newest, 1000), shorten(newest, 1<<30), lose(newest))
		each(t, jobs, func(j damage) error {
			got, err := r.wake(j)
			switch {
			case err != nil:
				return err
			case got.err != nil:
				return fmt.Errorf("%s: %s: %w", d.name, j.what, got.err)
			case got.is != "":
				return fmt.Errorf("%s: %s: the state differs: %s", d.name, j.what, got.is)
			case !strings.HasSuffix(j.what, "gone") && !got.log.has("an older one"):
				return fmt.Errorf("%s: %s: it is not said that an image is damaged", d.name, j.what)
			}
			return nil
		})
		both := damage{"both images", func(d *crashfs.FS) error { return errors.Join(d.Corrupt(images[0], 40), d.Corrupt(newest, 40)) }}
		got, err := r.wake(both)
		if err != nil || got.err == nil || !strings.Contains(got.err.Error(), images[0]) || !strings.Contains(got.err.Error(), newest) {
			t.Errorf("%s: with both images damaged: %v %v; want a refusal that names both", d.name, err, got.err)
		}
	}
}

// TestScenario46aDamagedJournal: a flipped bit in what is needed refuses the
// start, and says where; what is not needed may be damaged. Never is there
// another state.
func TestScenario46aDamagedJournal(t *testing.T) {
	t.Parallel()
	for _, d := range days {
		r := afternoon(t, d)
		segments := files(t, r.disk, "journal", ".log")
		var jobs []damage
		for i, s := range segments {
			jobs = append(jobs, flips(t, r.disk, s, stride(7))...)
			if i < len(segments)-1 {
				jobs = append(jobs, lose(s), shorten(s, 1), shorten(s, 100))
			}
		}
		count := counter{}
		each(t, jobs, func(j damage) error {
			got, err := r.wake(j)
			switch {
			case err != nil:
				return err
			case got.is != "":
				return fmt.Errorf("%s: %s: the state differs: %s", d.name, j.what, got.is)
			case got.err == nil:
				count.add("equal", 1)
			case strings.HasSuffix(j.what, "gone"):
				count.add("refused", 1)
			case !strings.Contains(got.err.Error(), dataDir+"/journal/") || !strings.Contains(got.err.Error(), "offset"):
				return fmt.Errorf("%s: %s: the refusal names no place: %w", d.name, j.what, got.err)
			default:
				count.add("refused", 1)
			}
			return nil
		})
		t.Logf("%s: %d times refused, %d times not needed", d.name, count.get("refused"), count.get("equal"))
		if count.get("refused") == 0 {
			t.Errorf("%s: nothing was refused", d.name)
		}
		// All of the last segment is needed: its end is the last that was done.
		last := segments[len(segments)-1]
		used, err := length(r.disk, last)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range flips(t, r.disk, last, stride(3))[:(used-1)/stride(3)+1] {
			if got, err := r.wake(j); err != nil || got.err == nil {
				t.Errorf("%s: %s: it starts (%v)", d.name, j.what, err)
			}
		}
		all := damage{"an empty journal", func(d *crashfs.FS) error {
			for _, s := range segments {
				if err := d.Remove(s); err != nil {
					return err
				}
			}
			f, err := d.Create(dataDir + "/journal/journal.lock") // as a real disk has it
			return errors.Join(err, f.Close())
		}}
		if got, err := r.wake(all); err != nil || got.err == nil || !strings.Contains(got.err.Error(), "journal") {
			t.Errorf("%s: %s: %v %v; want a refusal", d.name, all.what, err, got.err)
		}
	}
}

// TestScenario46aTornBatch: the last batch cut short, or with whole sectors of
// zeros at its end, is one that was never acknowledged.
func TestScenario46aTornBatch(t *testing.T) {
	t.Parallel()
	r := &run{day: "torn batch", disk: crashfs.New(), wall: epoch, want: newModel(), clients: map[string]*client{}}
	err := r.guard(func() {
		a := r.by("a")
		r.start()
		r.do(a.create("f", "/f", "before", true))
		before := r.disk.Clone()
		r.do(a.create("g", "/g", text("a batch of more than one sector", 1500), true))
		after := r.disk.Clone()
		r.stop(r.m, false)
		seg := files(t, after, "journal", ".log")
		name := seg[len(seg)-1]
		was, err1 := length(before, name)
		is, err2 := length(after, name)
		if err1 != nil || err2 != nil || is <= was {
			r.failf("the batch is not in %s: %v %v", name, err1, err2)
		}
		without := r.want.clone()
		without.remove("/g")
		for cut := int64(1); cut <= is-was; cut += 13 {
			disk := after.Clone()
			if err := shorten(name, cut).do(disk); err != nil {
				r.failf("%v", err)
			}
			m := r.mustBoot(disk)
			r.match(m, without)
			r.powerFails(disk, without)
			r.stop(m, false)
		}
		for at := was; at < is; at += 11 { // complete, with a flipped bit
			disk := after.Clone()
			if err := disk.Corrupt(name, at); err != nil {
				r.failf("%v", err)
			}
			was := contents(disk)
			if _, err := boot(disk, r.wall, r.opts...); err == nil || !strings.Contains(err.Error(), name) {
				r.failf("with byte %d of the last batch flipped: %v; want a refusal that names %s", at, err, name)
			}
			if is := contents(disk); is != was {
				r.failf("a refused start changed the journal")
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// contents is all of the journal's bytes.
func contents(d *crashfs.FS) string {
	var b strings.Builder
	_ = walkDisk(d, dataDir+"/journal", func(name string) {
		f, err := d.Open(name)
		if err != nil {
			return
		}
		n, _ := f.Size()
		buf := make([]byte, n)
		_, _ = f.ReadAt(buf, 0)
		_ = f.Close()
		fmt.Fprintf(&b, "%s %d %s\n", name, n, buf)
	})
	return b.String()
}

// TestDamagedBlock: never wrong bytes, and fsck names the file.
func TestDamagedBlock(t *testing.T) {
	t.Parallel()
	r := evening(t, days[1])
	var jobs []damage
	for _, b := range files(t, r.disk, "blocks", ".blk") {
		jobs = append(jobs, flips(t, r.disk, b, stride(41))...)
		jobs = append(jobs, lose(b), shorten(b, 1))
	}
	each(t, jobs, func(j damage) error {
		return r.guard(func() {
			disk := r.disk.Clone()
			if err := j.do(disk); err != nil {
				r.failf("%v", err)
			}
			m := r.mustBoot(disk)
			defer func() { _ = m.halt() }()
			if _, err := m.state(); err == nil || !strings.Contains(err.Error(), "block") || !strings.Contains(err.Error(), "/") {
				r.failf("%s: reading says %v", j.what, err)
			}
			if err := m.fsck(); err == nil || !strings.Contains(err.Error(), "block") {
				r.failf("%s: fsck says %v", j.what, err)
			}
		})
	})
}

// TestDamagedFolder: VERSION and secret.
func TestDamagedFolder(t *testing.T) {
	t.Parallel()
	r := evening(t, days[1])
	version, secret := dataDir+"/VERSION", dataDir+"/secret"
	format := fmt.Sprint("format = ", levels.Newest())
	for _, c := range []struct {
		damage
		says string // "": it starts, with the same state
	}{
		{lose(version), "VERSION"},
		{shorten(version, 1<<20), "VERSION"},
		{lose(secret), ""},
		{shorten(secret, 5), "secret"},
		{shorten(secret, 1<<20), "secret"},
		{flip(secret, 7, 3), ""},
		{damage{"a newer format", func(d *crashfs.FS) error { return replace(d, version, format, "format = 9") }}, "newer"},
		{damage{"no format", func(d *crashfs.FS) error { return replace(d, version, format, "format = 0") }}, "damaged"},
	} {
		got, err := r.wake(c.damage)
		switch {
		case err != nil:
			t.Error(err)
		case c.says == "" && (got.err != nil || got.is != ""):
			t.Errorf("%s: %v %s", c.what, got.err, got.is)
		case c.says != "" && (got.err == nil || !strings.Contains(got.err.Error(), c.says)):
			t.Errorf("%s: %v, want a refusal that says %q", c.what, got.err, c.says)
		}
	}
	// Whatever bit is flipped: refused, or the same.
	each(t, flips(t, r.disk, version, 1), func(j damage) error {
		got, err := r.wake(j)
		if err == nil && got.is != "" {
			err = fmt.Errorf("%s: the state differs: %s", j.what, got.is)
		}
		return err
	})
}

func replace(d *crashfs.FS, name, from, to string) error {
	f, err := d.Open(name)
	if err != nil {
		return err
	}
	n, _ := f.Size()
	buf := make([]byte, n)
	_, _ = f.ReadAt(buf, 0)
	_ = f.Close()
	text := strings.Replace(string(buf), from, to, 1)
	if text == string(buf) {
		return fmt.Errorf("%s has no %q: %s", name, from, buf)
	}
	if f, err = d.Create(name); err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.Sync(), f.Close())
}
