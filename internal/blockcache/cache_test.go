package blockcache

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	chunk     = blockstore.ChunkSize
	namespace = "0123456789abcdef0123456789abcdef"
)

// object is a block with its bytes.
type object struct {
	Block
	data  []byte
	table blockstore.Table
}

// newObject has bytes that follow from its number.
func newObject(n uint64, size int) object {
	data := make([]byte, size, blockstore.StoredLength(int64(size)))
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}).Read(data) // never fails
	whole, crc := blockstore.Seal(data)
	return object{Block{blockstore.Key{Term: 7, Seq: n}, int64(len(whole)), crc}, whole[:size], blockstore.Table(whole[size:])}
}

// folderOf makes a folder that may be used.
func folderOf(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blocks")
	must(t, os.Mkdir(dir, 0o700))
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string, size int64) *Cache {
	t.Helper()
	c, err := Open(Config{Dir: dir, Size: size})
	must(t, err)
	must(t, c.Use(namespace))
	t.Cleanup(c.Close)
	return c
}

// put offers a range of an object, and waits until it was taken.
func put(t testing.TB, c *Cache, o object, off, length int) {
	t.Helper()
	done := make(chan struct{})
	if !c.Offer(o.Block, o.table, int64(off), o.data[off:off+length], func() { close(done) }) {
		t.Fatal("the offer was refused")
	}
	<-done
}

// has reads a range of an object. What is there must be right.
func has(t testing.TB, c *Cache, o object, off, length int) bool {
	t.Helper()
	got := make([]byte, length)
	table, ok := c.Read(o.Block, nil, int64(off), got)
	if ok && (!bytes.Equal(got, o.data[off:off+length]) || !bytes.Equal(table, o.table)) {
		t.Fatalf("wrong bytes of block %s from %d on", o.Key, off)
	}
	return ok
}

// usage is what the files in a folder take on disk.
func usage(t testing.TB, dir string) (total int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		total += st.Blocks * 512
		return nil
	}))
	return total
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(asProcess); dir != "" {
		os.Exit(process(dir))
	}
	goleak.VerifyTestMain(m)
}

func TestReadWhatWasOffered(t *testing.T) {
	dir := folderOf(t)
	c := open(t, dir, MinSize)
	whole, part := newObject(1, 3*chunk+100), newObject(2, 5*chunk+1)
	if has(t, c, whole, 0, chunk) {
		t.Fatal("it has what nobody offered")
	}
	put(t, c, whole, 0, len(whole.data))
	put(t, c, part, chunk, 2*chunk)
	put(t, c, part, 5*chunk, 1)
	for _, r := range []struct {
		o           object
		off, length int
		want        bool
	}{
		{whole, 0, len(whole.data), true}, {whole, chunk, chunk, true}, {whole, 3 * chunk, 100, true},
		{part, chunk, 2 * chunk, true}, {part, 2 * chunk, chunk, true}, {part, 5 * chunk, 1, true},
		{part, 0, chunk, false}, {part, 0, len(part.data), false}, {part, 2 * chunk, 2 * chunk, false}, {part, 3 * chunk, chunk, false},
	} {
		if got := has(t, c, r.o, r.off, r.length); got != r.want {
			t.Errorf("block %s, %d bytes from %d on: %v, want %v", r.o.Key, r.length, r.off, got, r.want)
		}
	}
	// Another process, or the next one, has it too; another namespace, length or checksum has not.
	if !has(t, open(t, dir, MinSize), whole, 0, len(whole.data)) {
		t.Error("it is gone for the next process")
	}
	other, err := Open(Config{Dir: dir})
	must(t, err)
	must(t, other.Use(strings.Repeat("f", 32)))
	defer other.Close()
	if has(t, other, whole, 0, chunk) {
		t.Error("another namespace has the block")
	}
	stranger := whole
	stranger.CRC++
	if has(t, c, stranger, 0, chunk) {
		t.Error("a block of another checksum is there")
	}
	want := Stats{Hits: 6, HitBytes: uint64(len(whole.data)) + 4*chunk + 101, Misses: 6, StoredBytes: uint64(len(whole.data)) + 2*chunk + 1}
	if got := c.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestZeros: a chunk of zeros looks as if it were missing, and is right nevertheless.
func TestZeros(t *testing.T) {
	c := open(t, folderOf(t), MinSize)
	data := make([]byte, 2*chunk, blockstore.StoredLength(2*chunk))
	whole, crc := blockstore.Seal(data)
	o := object{Block{blockstore.Key{Term: 1, Seq: 1}, int64(len(whole)), crc}, whole[:2*chunk], blockstore.Table(whole[2*chunk:])}
	for range 2 {
		put(t, c, o, 0, 2*chunk)
		if !has(t, c, o, 0, 2*chunk) {
			t.Fatal("it is not there")
		}
	}
}

// TestDamage: whatever byte of a file is wrong, or however long it is, wrong bytes are
// never read, nothing fails, and what is offered next mends it.
func TestDamage(t *testing.T) {
	dir := folderOf(t)
	c := open(t, dir, MinSize)
	o := newObject(1, 2*chunk+10)
	name := filepath.Join(dir, c.path(o.Block))
	put(t, c, o, 0, len(o.data))
	good, err := os.ReadFile(name)
	must(t, err)
	if int64(len(good)) != o.Stored {
		t.Fatal(len(good))
	}
	damage := func(bad []byte) {
		t.Helper()
		before := c.Stats().Damaged
		must(t, os.WriteFile(name, bad, 0o600))
		if has(t, c, o, 0, len(o.data)) {
			t.Fatal("it was read")
		}
		put(t, c, o, 0, len(o.data))
		if !has(t, c, o, 0, len(o.data)) {
			t.Fatal("it was not mended")
		}
		if got := c.Stats().Damaged - before; got != 1 {
			t.Fatalf("it was counted %d times", got)
		}
	}
	for at := range good {
		if at > 50 && at < len(good)-50 && at%chunk > 3 && at%997 != 0 {
			continue // each byte takes a millisecond
		}
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		damage(bad)
	}
	for _, n := range []int{1, chunk, len(good) - 1} {
		damage(good[:n])
	}
	damage(append(bytes.Clone(good), 0))
	// A folder in the place of the file, which nobody can mend, is in nobody's way.
	must(t, os.Remove(name))
	must(t, os.Mkdir(name, 0o700))
	if has(t, c, o, 0, chunk) {
		t.Fatal("a folder was read")
	}
	put(t, c, o, 0, chunk)
	if c.Stats().Skipped != 1 {
		t.Errorf("%+v", c.Stats())
	}
}

// TestCrash: the machine lost power. Of what was written, any sectors are on disk,
// in any order, and others have zeros or bytes of other files; so has the file with
// the lock. What is read is right, what is offered is kept, the limit holds.
func TestCrash(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		dir := folderOf(t)
		c := open(t, dir, MinSize)
		objects := make([]object, 6)
		for i := range objects {
			objects[i] = newObject(uint64(i), rnd.IntN(8*chunk)+1)
			put(t, c, objects[i], 0, len(objects[i].data))
		}
		c.Close()
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || rnd.IntN(4) == 0 {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for at := 0; at < len(raw); at += 512 {
				switch sector := raw[at:min(at+512, len(raw))]; rnd.IntN(12) {
				case 0:
					clear(sector)
				case 1:
					for i := range sector {
						sector[i] = byte(rnd.Uint32())
					}
				}
			}
			if rnd.IntN(4) == 0 {
				raw = raw[:rnd.IntN(len(raw)+1)]
			}
			return os.WriteFile(path, raw, 0o600)
		}))
		c, err := Open(Config{Dir: dir, Size: MinSize})
		must(t, err)
		c.folder.boot = "another"
		must(t, c.Use(namespace))
		for round := range 2 {
			for _, o := range objects {
				for off := 0; off < len(o.data); off += chunk {
					if !has(t, c, o, off, min(chunk, len(o.data)-off)) && round == 1 {
						t.Fatalf("seed %d: block %s is not kept at %d", seed, o.Key, off)
					}
				}
				put(t, c, o, 0, len(o.data))
			}
		}
		c.Close()
		if got := usage(t, dir); got > MinSize {
			t.Fatalf("seed %d: %d bytes", seed, got)
		}
	}
}

// TestEviction: what was not used for the longest time goes first; a use is a write or
// a read, by whatever process.
func TestEviction(t *testing.T) {
	dir := folderOf(t)
	c, reader := open(t, dir, MinSize), open(t, dir, MinSize)
	var objects []object
	age := func(o object, d time.Duration) {
		at := time.Now().Add(-d)
		must(t, os.Chtimes(filepath.Join(dir, c.path(o.Block)), at, at))
	}
	for i := range 12 { // of 1 MiB: there is room for 15 at least
		o := newObject(uint64(i), 1<<20)
		put(t, c, o, 0, len(o.data))
		age(o, time.Duration(100-i)*time.Hour)
		objects = append(objects, o)
	}
	if c.Stats().Evicted != 0 {
		t.Fatalf("%+v", c.Stats())
	}
	if !has(t, reader, objects[0], 0, chunk) || !has(t, reader, objects[2], chunk, chunk) {
		t.Fatal("they are gone already")
	}
	age(objects[5], -time.Hour) // by a clock that was wrong
	opened, err := os.Open(filepath.Join(dir, c.path(objects[1].Block)))
	must(t, err)
	defer opened.Close()
	for i := range 5 {
		o := newObject(uint64(100+i), 1<<20)
		put(t, c, o, 0, len(o.data))
	}
	n := int(c.Stats().Evicted)
	if n < 2 || n > 8 {
		t.Fatalf("%d files were removed", n)
	}
	for place, i := range []int{5, 1, 3, 4, 6, 7, 8, 9, 10, 11} {
		if got := has(t, c, objects[i], 0, chunk); got != (place >= n) {
			t.Errorf("object %d is the %d. to go, %d are gone: %v", i, place+1, n, got)
		}
	}
	if !has(t, c, objects[0], 0, chunk) || !has(t, c, objects[2], 0, chunk) {
		t.Error("what was used is gone")
	}
	// Who has it open reads it still.
	got := make([]byte, chunk)
	if _, err := opened.ReadAt(got, 0); err != nil || !bytes.Equal(got, objects[1].data[:chunk]) {
		t.Errorf("what was open: %v", err)
	}
}

// TestLimit: the folder never takes more than the limit, whatever sizes come, and
// whatever of it others have changed.
func TestLimit(t *testing.T) {
	dir := folderOf(t)
	c := open(t, dir, MinSize)
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for i := range 200 {
		o := newObject(uint64(i), rnd.IntN(2<<20)+1)
		off := rnd.IntN(len(o.data)) / chunk * chunk
		put(t, c, o, off, len(o.data)-off)
		if !has(t, c, o, off, len(o.data)-off) {
			t.Fatalf("block %d was not kept", i)
		}
		switch i {
		case 50: // the sum is lost
			must(t, os.Truncate(filepath.Join(dir, lockName), 3))
		case 100: // somebody has emptied the folder
			names, err := filepath.Glob(dir + "/*")
			must(t, err)
			for _, n := range names {
				must(t, os.RemoveAll(n))
			}
		}
		if got := usage(t, dir); got > MinSize {
			t.Fatalf("%d bytes after block %d", got, i)
		}
	}
	if c.Stats().Evicted < 50 {
		t.Errorf("%+v", c.Stats())
	}
	huge := newObject(1000, MinSize)
	put(t, c, huge, 0, len(huge.data))
	if has(t, c, huge, 0, chunk) || usage(t, dir) > MinSize {
		t.Error("what never fits was kept")
	}
}

// TestStrangersFiles are not counted and not removed.
func TestStrangersFiles(t *testing.T) {
	dir := folderOf(t)
	c := open(t, dir, MinSize)
	must(t, os.MkdirAll(filepath.Join(dir, namespace), 0o700))
	files := []string{"note", namespace + "/7-1-2", namespace + "/7-0x1-2-00000003", namespace + "/7-1-2-00000003.tmp"}
	for _, f := range files {
		must(t, os.WriteFile(filepath.Join(dir, f), []byte("mine"), 0o600))
		must(t, os.Chtimes(filepath.Join(dir, f), time.Unix(1, 0), time.Unix(1, 0)))
	}
	for i := range 20 {
		o := newObject(uint64(i), 1<<20)
		put(t, c, o, 0, len(o.data))
	}
	for _, f := range files {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Error(err)
		}
	}
}

func TestFoldersThatCannotBeUsed(t *testing.T) {
	base := t.TempDir()
	made := func(name string, mode fs.FileMode, files ...string) string {
		dir := filepath.Join(base, name)
		must(t, os.Mkdir(dir, 0o700))
		for _, f := range files {
			must(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
		}
		must(t, os.Chmod(dir, mode))
		return dir
	}
	file := filepath.Join(base, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		dir  string
		size int64
		kind fserror.Kind
		says string
	}{
		{"", 0, fserror.InvalidArgument, "no name"},
		{filepath.Join(base, "none"), 0, fserror.NotFound, "make it first"},
		{file, 0, fserror.NotDirectory, "not a folder"},
		{made("open", 0o755), 0, fserror.Permission, "chmod 700"},
		{made("group", 0o710), 0, fserror.Permission, "0710"},
		{made("home", 0o700, "thesis.tex"), 0, fserror.InvalidArgument, "thesis.tex"},
		{made("small", 0o700), MinSize - 1, fserror.InvalidArgument, fmt.Sprint(MinSize)},
		{made("negative", 0o700), -1, fserror.InvalidArgument, "too small"},
	} {
		_, err := Open(Config{Dir: c.dir, Size: c.size})
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || fserror.ReasonOf(err) != fserror.ReasonBlockCache {
			t.Errorf("%s: %v, want %v that says %q", c.dir, err, c.kind, c.says)
		}
	}
	for _, dir := range []string{made("new", 0o700), made("disk", 0o700, "lost+found"), made("used", 0o700, lockName, "other")} {
		c, err := Open(Config{Dir: dir})
		must(t, err)
		if err := c.Use("../../etc"); !errors.Is(err, fserror.Internal) {
			t.Errorf("a namespace that is none: %v", err)
		}
		c.Close()
	}
	var none *Cache
	must(t, none.Use(namespace))
	if _, ok := none.Read(Block{}, nil, 0, nil); ok || none.Offer(Block{}, nil, 0, nil, nil) || none.Stats() != (Stats{}) {
		t.Error("no cache keeps something")
	}
	none.Close()
}

// A limit that is lower than before counts at once, and what is no file makes nobody wait.
func TestLowerLimitAndPipes(t *testing.T) {
	dir := folderOf(t)
	c := open(t, dir, 2*MinSize)
	first := newObject(0, 1<<20)
	for i := range 25 {
		o := newObject(uint64(i), 1<<20)
		put(t, c, o, 0, len(o.data))
	}
	c.Close()
	lower := open(t, dir, MinSize)
	lower.Close() // once it has looked
	if got := usage(t, dir); got > MinSize {
		t.Errorf("%d bytes at a limit of %d", got, MinSize)
	}
	c = open(t, dir, MinSize)
	put(t, c, first, 0, len(first.data))
	file := filepath.Join(dir, c.path(first.Block))
	must(t, os.Remove(file))
	must(t, unix.Mkfifo(file, 0o600))
	if has(t, c, first, 0, chunk) {
		t.Error("a pipe has a block")
	}
	put(t, c, first, 0, len(first.data)) // in its place, or not at all
	held, err := c.folder.lock(t.Context())
	must(t, err)
	defer held.unlock()
	c.folder.trim(t.Context()) // does not wait for whoever holds the lock and has stopped
}
