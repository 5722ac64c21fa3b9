package hdfs_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	native "github.com/colinmarc/hdfs/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// random are bytes that differ from their neighbours.
func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same each time
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// holds fails the test unless clients of both kinds see just these bytes.
func holds(t *testing.T, c *native.Client, fs *client.FS, path string, want []byte) {
	t.Helper()
	got, err := c.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: HDFS's client sees %d bytes, or others, want %d: %v", path, len(got), len(want), err)
	}
	if got, err = fs.ReadFile(t.Context(), path); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: the library sees %d bytes, or others, want %d: %v", path, len(got), len(want), err)
	}
}

// flushed writes bytes by HDFS's client and waits until all can read them: it does not itself.
func flushed(t *testing.T, fs *client.FS, w *native.FileWriter, path string, b []byte, length int64) {
	t.Helper()
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	check(t, w.Flush())
	env.Eventually(t, "the bytes are there", func() bool {
		i, err := fs.Stat(t.Context(), path)
		return err == nil && i.Length == length
	})
}

// TestWriters: a client of HDFS and the library exclude each other, and each gets its own kind of
// error.
func TestWriters(t *testing.T) {
	n, s := start(t)
	c, fs := connect(t, s, "root"), n.Client(t)
	w, err := c.CreateFile("/f", 1, 1<<20, 0o644)
	check(t, err)
	flushed(t, fs, w, "/f", []byte("hello"), 5)
	_, err = fs.Append(t.Context(), "/f")
	var held *client.Error
	if !errors.As(err, &held) || held.Kind != client.ErrHeld || held.Holder == nil || held.Holder.User != "root" || held.TakeableIn <= 0 {
		t.Errorf("append by the library: %v", err)
	}
	listed := 0
	for l, err := range fs.Leases().List(t.Context(), client.LeaseFilter{Path: "/f"}) {
		check(t, err)
		if listed++; l.Holder.Client != held.Holder.Client {
			t.Errorf("the lease is of %q", l.Holder.Client)
		}
	}
	if listed != 1 {
		t.Errorf("%d leases are listed", listed)
	}
	check(t, w.Close())
	holds(t, c, fs, "/f", []byte("hello"))

	l, err := fs.Append(t.Context(), "/f")
	check(t, err)
	_, err = c.Append("/f")
	var class native.Error
	if !errors.As(err, &class) || class.Exception() != hadoop.AlreadyBeingCreated {
		t.Errorf("append by HDFS's client: %v", err)
	}
	if _, err = c.CreateFile("/f", 1, 1<<20, 0o644); !errors.Is(err, os.ErrExist) {
		t.Errorf("create by HDFS's client: %v", err)
	}
	if _, err = c.Truncate("/f", 1); !errors.As(err, &class) || class.Exception() != hadoop.AlreadyBeingCreated {
		t.Errorf("truncate by HDFS's client: %v", err)
	}
	_, err = l.Write([]byte(", you"))
	check(t, err, l.Close())
	w, err = c.Append("/f")
	check(t, err)
	_, err = w.Write([]byte("!"))
	check(t, err, w.Close())
	holds(t, c, fs, "/f", []byte("hello, you!"))
}

// TestReplacedWriters: a writer that another replaced, whichever of them is of HDFS, fails at its
// next flush, and nothing of it is in the file.
func TestReplacedWriters(t *testing.T) {
	n, s := start(t)
	c, fs := connect(t, s, "root"), n.Client(t)
	w, err := c.CreateFile("/f", 1, 1<<20, 0o644)
	check(t, err)
	flushed(t, fs, w, "/f", []byte("old"), 3)
	l, err := fs.Create(t.Context(), "/f", client.WithOverwrite(), client.WithSteal())
	check(t, err)
	_, err = w.Write([]byte("lost"))
	if err = errors.Join(err, w.Close()); err == nil {
		t.Error("the writer of a replaced file did not learn of it")
	}
	_, err = l.Write([]byte("new"))
	check(t, err, l.Close())
	holds(t, c, fs, "/f", []byte("new"))

	if l, err = fs.Append(t.Context(), "/f"); err != nil {
		t.Fatal(err)
	}
	check(t, c.Remove("/f"))
	_, err = l.Write([]byte("lost"))
	if err = errors.Join(err, l.Close()); client.KindOf(err) != client.ErrLeaseLostGone && !errors.Is(err, client.ErrLeaseLost) {
		t.Errorf("the library's writer: %v", err)
	}
}

// TestReplacedWriterCloses: a writer that has flushed all, and was replaced since then, is told so by
// its name when it closes.
func TestReplacedWriterCloses(t *testing.T) {
	n, s := start(t)
	c, fs := connect(t, s, "root"), n.Client(t)
	w, err := c.CreateFile("/f", 1, 1<<20, 0o644)
	check(t, err)
	flushed(t, fs, w, "/f", []byte("old"), 3)
	_, err = fs.Recover(t.Context(), "/f", true)
	check(t, err)
	l, err := fs.Append(t.Context(), "/f")
	check(t, err)
	wantClass(t, "close", w.Close(), hadoop.LeaseExpired)
	_, err = l.Write([]byte(" new"))
	check(t, err, l.Close())
	holds(t, c, fs, "/f", []byte("old new"))
}

// TestSilentWriter: a client of HDFS keeps its file while it renews, whatever else it does. One
// that is silent is replaced after the soft limit, and not before, and what nobody asks for is
// closed at the hard limit.
func TestSilentWriter(t *testing.T) {
	n := env.Start(t, func(c *namenode.Config) { c.SoftLimit, c.HardLimit = 4*time.Second, 12*time.Second })
	s := gateway(t, n)
	c, fs := connect(t, s, "root"), n.Client(t)
	lives, err := c.CreateFile("/lives", 1, 1<<20, 0o644)
	check(t, err)
	dies, err := native.NewClient(native.ClientOptions{Addresses: []string{s.Addr()}, User: "root"})
	check(t, err)
	began := time.Now()
	w, err := dies.CreateFile("/f", 1, 1<<20, 0o644)
	check(t, err)
	_, err = dies.CreateFile("/g", 1, 1<<20, 0o644)
	check(t, err)
	flushed(t, fs, w, "/f", []byte("hello"), 5)
	check(t, dies.Close()) // its connection for bytes stays
	l, err := fs.Append(t.Context(), "/f", client.WithWait(time.Minute))
	check(t, err)
	if d := time.Since(began); !l.TookOver() || d < 4*time.Second {
		t.Errorf("taken over: %v, after %s", l.TookOver(), d)
	}
	check(t, l.Close())
	_, err = w.Write([]byte("lost"))
	if err = errors.Join(err, w.Close()); err == nil {
		t.Error("the silent writer did not learn that it was replaced")
	}
	env.Eventually(t, "the other file is closed", func() bool {
		i, err := fs.Stat(t.Context(), "/g")
		return err == nil && i.Open == nil
	})
	_, err = lives.Write([]byte("still here"))
	check(t, err, lives.Close())
	holds(t, c, fs, "/f", []byte("hello"))
	holds(t, c, fs, "/lives", []byte("still here"))
}

// TestRestart: a namenode that is started again while HDFS's client writes costs it time only.
func TestRestart(t *testing.T) {
	n, s := start(t)
	c := connect(t, s, "root")
	w, err := c.CreateFile("/f", 1, 1<<20, 0o644)
	check(t, err)
	all := random(3<<20+1000, 1)
	for at := 0; at < len(all); at += 300_000 {
		if at == 900_000 || at == 2_100_000 {
			n.Restart(t)
		}
		_, err := w.Write(all[at:min(at+300_000, len(all))])
		check(t, err)
	}
	check(t, w.Close())
	holds(t, c, n.Client(t), "/f", all)
	r, err := c.Open("/f")
	check(t, err)
	defer r.Close()
	b := make([]byte, 1000)
	for range 20 {
		off := rand.Int64N(int64(len(all) - len(b))) //nolint:gosec // any will do
		if _, err := r.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) || !bytes.Equal(b, all[off:][:len(b)]) {
			t.Fatalf("other bytes at %d: %v", off, err)
		}
	}
}
