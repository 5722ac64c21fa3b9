package fuse_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/fuse"
)

// TestQuotas: who writes through a mount gets EDQUOT where a quota is used up, at the latest when
// the file is closed, and df shows the quota's room.
func TestQuotas(t *testing.T) {
	r := newRig(t)
	m := r.mount(fuse.Options{})
	must(t, os.MkdirAll(m.path("q/in"), 0o755))
	set := func(names, bytes int64) { must(t, quota.Set(t.Context(), m.FS(), "/q", names, bytes)) }
	statfs := func(path string) (st unix.Statfs_t) {
		must(t, unix.Statfs(m.path(path), &st))
		return st
	}
	outside := statfs(".")
	set(5, 64<<10)
	m.write("q/f", "0123456789")
	must(t, os.Mkdir(m.path("q/d"), 0o755))
	must(t, os.Symlink("f", m.path("q/l")))
	is(t, os.Mkdir(m.path("q/e"), 0o755), syscall.EDQUOT)
	_, err := os.OpenFile(m.path("q/in/g"), os.O_CREATE|os.O_WRONLY, 0o644)
	is(t, err, syscall.EDQUOT)
	is(t, os.Symlink("f", m.path("q/k")), syscall.EDQUOT)
	m.write("out", "x")
	is(t, os.Rename(m.path("out"), m.path("q/x")), syscall.EDQUOT)
	must(t, os.Rename(m.path("q/f"), m.path("q/in/f")))
	for _, path := range []string{"q", "q/in", "q/in/f"} {
		if st := statfs(path); st.Blocks != 16 || st.Bavail != 15 || st.Bfree != 15 || st.Files != 5 || st.Ffree != 0 {
			t.Errorf("%s: %+v", path, st)
		}
	}
	if st := statfs("."); st.Blocks != outside.Blocks || st.Ffree != outside.Ffree {
		t.Errorf("%+v, %+v", st, outside)
	}
	gone := m.open("q/in/f", os.O_RDONLY) // another client deletes it
	must(t, m.FS().Remove(t.Context(), "/q/in/f"))
	var st unix.Statfs_t
	must(t, unix.Fstatfs(int(gone.Fd()), &st))
	must(t, gone.Close())
	m.write("q/in/f", "0123456789")
	f := m.open("q/in/f", os.O_WRONLY|os.O_APPEND)
	say(t, f, "more")
	must(t, f.Sync())
	_, err = f.Write(bytes.Repeat([]byte("x"), 64<<10))
	if err == nil {
		err = f.Sync()
	}
	is(t, err, syscall.EDQUOT)
	_ = f.Close() // says so again, or not
	m.reads("q/in/f", "0123456789more")
	g := m.open("q/in/f", os.O_WRONLY|os.O_TRUNC) // it is closed, and can be shortened
	must(t, g.Close())
	set(quota.None, 5)
	m.write("q/in/f", "12345")
	m.write("out", "123456")
	is(t, os.Rename(m.path("out"), m.path("q/in/f")), syscall.EDQUOT)
	set(quota.None, 0)
	if st := statfs("q"); st.Blocks != 0 || st.Bavail != 0 {
		t.Errorf("%+v", st)
	}
	small := m.open("q/s", os.O_CREATE|os.O_WRONLY)
	_, err = small.WriteString("1")
	if err == nil {
		err = small.Close()
	}
	is(t, err, syscall.EDQUOT)
	must(t, os.RemoveAll(m.path("q")))
	if st := statfs("."); st.Ffree != outside.Ffree {
		t.Errorf("%+v", st)
	}
}

// TestQuotaRefusesSettledDrafts: who writes a file for which there is no room, as it turns out when
// somebody looks at it, is told so: by close, by fsync and by another write.
func TestQuotaRefusesSettledDrafts(t *testing.T) {
	r := newRig(t, longTerm)
	for i, told := range map[string]func(*os.File) error{
		"close": (*os.File).Close, "fsync": (*os.File).Sync, "write": func(f *os.File) error { _, err := f.WriteString("more"); return err },
	} {
		m := r.drafter(long(), i)
		m.loses = syscall.EDQUOT
		f := m.begin(i+"/f", os.O_WRONLY)
		say(t, f, "text")
		must(t, quota.Set(t.Context(), r.Client(t), "/"+i, int64(1+m.n), quota.None))
		if _, err := os.Stat(m.path(i + "/f")); err == nil { // settles it
			t.Logf("%s: it is seen all the same", i)
		}
		if err := told(f); !errors.Is(err, syscall.EDQUOT) {
			t.Errorf("%s: %v", i, err)
		}
		_ = f.Close()
	}
}

// TestQuotaRecallsDrafts: a file that is made without a call when a quota is set is made if there
// is room for it, else it is refused with its close. After that each file is refused when it is
// opened.
func TestQuotaRecallsDrafts(t *testing.T) {
	r := newRig(t, longTerm)
	for room, want := range map[int64]error{1: nil, 0: syscall.EDQUOT} {
		dir := fmt.Sprint("d", room)
		m := r.drafter(long(), dir)
		f := m.begin(dir+"/f", os.O_WRONLY)
		say(t, f, "text")
		other, had := r.Client(t), int64(1+m.n) // the directory, and the files of ready
		must(t, quota.Set(t.Context(), other, "/"+dir, had+room, quota.None))
		if err := f.Close(); !errors.Is(err, want) {
			t.Errorf("room for %d: %v", room, err)
		}
		q, err := quota.Of(t.Context(), other, "/"+dir)
		must(t, err)
		if names, _ := q.Left(); names != 0 || q.UsedNames != had+room {
			t.Errorf("room for %d: %+v", room, q)
		}
		_, err = os.OpenFile(m.path(dir+"/more"), os.O_CREATE|os.O_WRONLY, 0o644)
		is(t, err, syscall.EDQUOT)
	}
}
