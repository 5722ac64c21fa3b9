package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// source sends VERSION and some blocks, by URL. Its stream breaks behind as many
// of these as breaks says, one number for each try.
type source struct {
	blocks int
	breaks []int
	name   func(i int) string

	reads func() // called when a block is read; nil: nothing

	tries int
	read  atomic.Int32 // blocks
}

func content(i int) []byte { return []byte(strings.Repeat(fmt.Sprint(i), 100+i)) }

func (s *source) ReadBackup(_ context.Context, _ bool, each func(*pb.BackupResponse) (bool, error)) error {
	send := func(m *pb.BackupResponse) error {
		_, err := each(m)
		return err
	}
	breaks := s.blocks + 1
	if s.tries < len(s.breaks) {
		breaks = s.breaks[s.tries]
	}
	s.tries++
	if err := send(&pb.BackupResponse{TotalBlocks: uint64(s.blocks)}); err != nil {
		return err
	}
	for i := range s.blocks {
		if i == breaks {
			return fserror.New(fserror.Unavailable, "backup", "", "the connection was lost")
		}
		data := content(i)
		if err := send(&pb.BackupResponse{
			Name: s.name(i), Url: fmt.Sprint(i), Length: int64(len(data)), Crc32C: blockstore.CRC(data),
		}); err != nil {
			return err
		}
	}
	version := []byte("format = 1\n")
	if err := send(&pb.BackupResponse{Name: versionFile, Data: version, Last: true, Crc32C: blockstore.CRC(version)}); err != nil {
		return err
	}
	return send(&pb.BackupResponse{Txid: 7})
}

func (s *source) ReadBlock(_ context.Context, m *pb.BackupResponse, dst []byte) error {
	s.read.Add(1)
	if s.reads != nil {
		s.reads()
	}
	var i int
	_, _ = fmt.Sscan(m.GetUrl(), &i)
	copy(dst, content(i))
	return nil
}

func blockName(i int) string { return fmt.Sprintf("blocks/id/%d", i) }

// A backup whose stream breaks continues, and reads no block twice.
func TestContinuesBehindABrokenStream(t *testing.T) {
	s := &source{blocks: 9, breaks: []int{3, 6}, name: blockName}
	dir := filepath.Join(t.TempDir(), "new", "backup")
	var last Result
	r, err := Write(t.Context(), s, dir, Options{Progress: func(so Result) { last = so }})
	if err != nil {
		t.Fatal(err)
	}
	if r.TxID != 7 || r.Files != 10 || r.Blocks != 9 || r.Reused != 6 || s.read.Load() != 9 || last.Blocks != 9 {
		t.Errorf("%+v, then %+v, with %d blocks read", last, r, s.read.Load())
	}
	for i := range s.blocks {
		if got, err := os.ReadFile(filepath.Join(dir, blockName(i))); err != nil || string(got) != string(content(i)) {
			t.Errorf("block %d: %q, %v", i, got, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left beside it: %q, %v", left, err)
	}
}

// What a backup that was killed left may not be on the disk: it is written again, and not read
// from the store. A link to a block of an earlier backup stays one.
func TestContinuesAfterAKill(t *testing.T) {
	top := t.TempDir()
	dir, earlier := filepath.Join(top, "new"), filepath.Join(top, "earlier")
	var left [2]os.FileInfo
	for i := range left {
		p := filepath.Join(top, ".new.part", blockName(i))
		err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o750), os.WriteFile(p, content(i), 0o600))
		if i == 1 {
			err = errors.Join(err, os.Link(p, earlier))
		}
		if left[i], _ = os.Stat(p); err != nil {
			t.Fatal(err)
		}
	}
	s := &source{blocks: 3, name: blockName}
	if r, err := Write(t.Context(), s, dir, Options{}); err != nil || r.Reused != 2 || s.read.Load() != 1 {
		t.Fatalf("%+v, %v; %d blocks were read", r, err, s.read.Load())
	}
	for i, was := range left {
		p := filepath.Join(dir, blockName(i))
		is, err := os.Stat(p)
		got, rerr := os.ReadFile(p)
		if err := errors.Join(err, rerr); err != nil || string(got) != string(content(i)) || os.SameFile(was, is) != (i == 1) {
			t.Errorf("block %d: %q, %v; the same file: %t", i, got, err, os.SameFile(was, is))
		}
	}
}

// What a namenode sends stays in the folder, and nothing is left of a backup that
// was refused.
func TestNamesStayInTheFolder(t *testing.T) {
	for _, name := range []string{"blocks/../../other", "blocks//etc/other", "../other", "image/1", ""} {
		parent := t.TempDir()
		s := &source{blocks: 1, name: func(int) string { return name }}
		_, err := Write(t.Context(), s, filepath.Join(parent, "backup"), Options{})
		if !errors.Is(err, fserror.Internal) || !strings.Contains(fmt.Sprint(err), "outside the folder") {
			t.Errorf("%q: %v", name, err)
		}
		if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
			t.Errorf("%q: left %v, %v", name, left, err)
		}
	}
}

// TestSince: blocks that an earlier backup has are linked to and not read; one that has another
// length there is read, and each folder is whole without the other.
func TestSince(t *testing.T) {
	earlier, later := filepath.Join(t.TempDir(), "earlier"), filepath.Join(t.TempDir(), "later")
	if _, err := Write(t.Context(), &source{blocks: 5, name: blockName}, earlier, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(earlier, blockName(3)), []byte("shorter"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &source{blocks: 8, breaks: []int{6}, name: blockName}
	r, err := Write(t.Context(), s, later, Options{Since: earlier})
	if err != nil {
		t.Fatal(err)
	}
	if n := s.read.Load(); r.Since != 4-r.Reused+2 || n != 4 || r.Files != 9 || r.Blocks != 8 {
		t.Errorf("%+v with %d blocks read", r, n)
	}
	old, err := os.Stat(filepath.Join(earlier, blockName(0)))
	if err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(filepath.Join(later, blockName(0))); err != nil || !os.SameFile(old, now) {
		t.Errorf("a block that both have is there twice: %v", err)
	}
	if err := os.RemoveAll(earlier); err != nil {
		t.Fatal(err)
	}
	for i := range s.blocks {
		if got, err := os.ReadFile(filepath.Join(later, blockName(i))); err != nil || string(got) != string(content(i)) {
			t.Errorf("block %d: %q, %v", i, got, err)
		}
	}
}

// TestSinceRefused: what is no backup with blocks of the namespace is refused, and nothing is
// left of the new one.
func TestSinceRefused(t *testing.T) {
	other, tree, empty := filepath.Join(t.TempDir(), "other"), filepath.Join(t.TempDir(), "tree"), t.TempDir()
	of := &source{blocks: 1, name: func(int) string { return "blocks/another/0" }}
	if _, err := Write(t.Context(), of, other, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(t.Context(), &source{}, tree, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Since: empty}, "no VERSION"},
		{Options{Since: filepath.Join(empty, "missing")}, "no VERSION"},
		{Options{Since: tree}, "no blocks"},
		{Options{Since: other}, "no blocks of this namespace"},
		{Options{Since: other, TreeOnly: true}, "the tree alone"},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		_, err := Write(t.Context(), &source{blocks: 2, name: blockName}, dir, c.o)
		if fserror.KindOf(err) != fserror.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*")); len(left) > 0 {
			t.Errorf("%+v: left %q", c.o, left)
		}
	}
}

// spoil changes a byte of a file.
func spoil(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{'!'}, 7)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSinceDamaged: a block that was linked to and is then found damaged, when the backup
// continues, is read from the store, and not linked to again.
func TestSinceDamaged(t *testing.T) {
	earlier, later := filepath.Join(t.TempDir(), "earlier"), filepath.Join(t.TempDir(), "later")
	if _, err := Write(t.Context(), &source{blocks: 5, name: blockName}, earlier, Options{}); err != nil {
		t.Fatal(err)
	}
	spoil(t, filepath.Join(earlier, blockName(0)))
	if _, err := Write(t.Context(), &source{blocks: 5, breaks: []int{4}, name: blockName}, later, Options{Since: earlier}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(later, blockName(0))); err != nil || string(got) != string(content(0)) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSinceVanishes: the earlier backup may be removed meanwhile; the store has all.
func TestSinceVanishes(t *testing.T) {
	earlier, later := filepath.Join(t.TempDir(), "earlier"), filepath.Join(t.TempDir(), "later")
	if _, err := Write(t.Context(), &source{blocks: 5, name: blockName}, earlier, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(earlier, blockName(0)), 1); err != nil { // so it is read
		t.Fatal(err)
	}
	s := &source{blocks: 9, name: blockName, reads: func() { _ = os.RemoveAll(earlier) }}
	if r, err := Write(t.Context(), s, later, Options{Since: earlier}); err != nil || r.Blocks != 9 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i := range s.blocks {
		if got, err := os.ReadFile(filepath.Join(later, blockName(i))); err != nil || string(got) != string(content(i)) {
			t.Errorf("block %d: %q, %v", i, got, err)
		}
	}
}

// TestWritesThroughNoLink: what is written in the place of a link leaves the other file alone.
func TestWritesThroughNoLink(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := errors.Join(os.WriteFile(a, []byte("of another backup"), 0o600), os.Link(a, b), writeSynced(b, []byte("new"))); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(a); err != nil || string(got) != "of another backup" {
		t.Errorf("%q, %v", got, err)
	}
}
