package client

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// names lists the fake's files.
func (f *fake) names() (all []string) {
	f.set(func() {
		for path := range f.files {
			all = append(all, path)
		}
	})
	return all
}

// A file that needs more than one call is not to be seen before it is whole,
// and what was there stays until then and after a failure.
func TestLargeFilesAreWholeOrNotAtAll(t *testing.T) {
	large := noise(500 << 10)
	noTails := func(req any) error {
		if r, ok := req.(*pb.CreateRequest); ok && len(r.Data) > 0 {
			return &fserror.Error{Kind: fserror.Retry, Reason: namecall.TailBudget}
		}
		return nil
	}
	for _, tc := range []struct {
		name  string
		data  []byte
		write func(fs *FS, data []byte) error
	}{
		{"WriteFile", large, func(fs *FS, data []byte) error {
			return fs.WriteFile(t.Context(), "/a", data, WithOverwrite())
		}},
		{"WriteFile without room in tails", []byte("new"), func(fs *FS, data []byte) error {
			return fs.WriteFile(t.Context(), "/a", data, WithOverwrite())
		}},
		{"WriteFiles without room in tails", []byte("new"), func(fs *FS, data []byte) error {
			errs, err := fs.WriteFiles(t.Context(), []FileData{{Path: "/a", Data: data, Options: []OpenOption{WithOverwrite()}}})
			return errors.Join(append(errs, err)...)
		}},
		{"WriteFrom", large, func(fs *FS, data []byte) error {
			_, err := fs.WriteFrom(t.Context(), "/a", bytes.NewReader(data), WithOverwrite())
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake()
			fs := start(t, f)
			check(t, fs.WriteFile(t.Context(), "/a", []byte("old")))
			check(t, fs.WriteFile(t.Context(), "/b", []byte("b")))
			var broken atomic.Bool // closes come in the background, too
			var looked atomic.Int64
			broken.Store(true)
			f.set(func() {
				f.before = func(method string, req any) error {
					switch r := req.(type) {
					case *pb.CreateRequest:
						return noTails(r)
					case *pb.CloseRequest, *pb.CommitRequest:
						looked.Add(1)
						if got := string(f.content("/a")); got != "old" {
							t.Errorf("%s: %d bytes are to be seen", method, len(got))
						}
						if _, is := r.(*pb.CloseRequest); is && broken.Load() {
							return fserror.New(fserror.Permission, "", "", "no")
						}
					}
					return nil
				}
			})
			err := tc.write(fs, tc.data)
			wantKind(t, err, fserror.Permission)
			if strings.Contains(err.Error(), "leasefs-") || !strings.Contains(err.Error(), "/a") {
				t.Errorf("the error names something else: %v", err)
			}
			if got := string(f.content("/a")); got != "old" || len(f.names()) != 2 || looked.Load() == 0 {
				t.Fatalf("%d bytes; there are %q", len(got), f.names())
			}
			broken.Store(false)
			check(t, tc.write(fs, tc.data))
			if !bytes.Equal(f.content("/a"), tc.data) || len(f.names()) != 2 {
				t.Fatalf("not what was written; there are %q", f.names())
			}
			check(t, fs.Close())
			f.set(func() {
				if len(f.leases) != 0 || f.files["/a"] == nil {
					t.Errorf("leases %v, files %v", f.leases, f.files)
				}
			})
		})
	}
}

// countReads counts what is read.
type countReads struct{ n int }

func (c *countReads) Read(p []byte) (int, error) { c.n++; return 0, errors.New("read") }

// What cannot be made is refused before a byte is read.
func TestWriteFromIsRefusedEarly(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	check(t, fs.WriteFile(t.Context(), "/a", nil))
	src := new(countReads)
	_, err := fs.WriteFrom(t.Context(), "/a", src)
	wantKind(t, err, fserror.Exists)
	w := mustCreate(t, fs, "/held")
	_, err = fs.WriteFrom(t.Context(), "/held", src, WithOverwrite())
	wantKind(t, err, fserror.Held)
	check(t, w.Close())
	if src.n != 0 {
		t.Fatalf("%d reads", src.n)
	}
	_, err = fs.WriteFrom(t.Context(), "/new", src)
	if err == nil || err.Error() != "read" || len(f.names()) != 2 {
		t.Fatalf("%v; there are %q", err, f.names())
	}
}

// Of many made at the same time all share one lease.
func TestWriteFromSharesOneLease(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	done := make(chan error, 8)
	for i := range cap(done) {
		go func() {
			_, err := fs.WriteFrom(t.Context(), fmt.Sprint("/f", i), bytes.NewReader(noise(100<<10)))
			done <- err
		}()
	}
	for range cap(done) {
		check(t, <-done)
	}
	if n := f.count("GrantLease"); n != 1 {
		t.Errorf("%d leases", n)
	}
}

// A machine that stood still for longer than the lease lives knows of its end before the lease's
// context does: what is attached next gets another one.
func TestScratchLeaseAfterStandstill(t *testing.T) {
	f, clk := newFake(), new(clock.Fake)
	fs := start(t, f, func(c *Config) { c.Clock = clk })
	lease := func() LeaseID {
		id, err := lowLevel{fs}.ScratchLease(t.Context())
		check(t, err)
		return id
	}
	first := lease()
	if again := lease(); again != first {
		t.Errorf("leases %x and %x while the first lives", first, again)
	}
	f.set(func() { delete(f.leases, uint64(first)) })
	clk.Advance(10 * time.Minute)
	if next := lease(); next == first {
		t.Errorf("lease %x is used, which has ended", first)
	}
}

// What is attached to the lease outlives an outage that is longer than it lives: while no namenode
// is active leases do not age, and after that it is kept alive as before, though nobody asks for it.
func TestScratchLeaseOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		fs := start(t, f)
		lease := func() LeaseID {
			id, err := lowLevel{fs}.ScratchLease(t.Context())
			check(t, err)
			return id
		}
		first := lease()
		f.set(func() { f.silent = true })
		<-time.After(15 * time.Minute)
		f.set(func() { f.silent = false })
		<-time.After(time.Minute)
		if left := fs.scratch.kept.Remaining(); left <= 0 {
			t.Errorf("after the outage it is not kept alive: %s remain", left)
		}
		if again := lease(); again != first {
			t.Errorf("leases %x and %x while the first lives", first, again)
		}
		f.set(func() { delete(f.leases, uint64(first)) })
		<-time.After(time.Minute)
		if next := lease(); next == first {
			t.Errorf("lease %x is used, which has ended", first)
		}
	})
}

// A refusal of everything is no reason to make blocks: that would be more work.
func TestOverloadIsNotAnsweredWithBlocks(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	refused := map[string]int{}
	f.set(func() {
		f.before = func(method string, _ any) error {
			if method == "Session" || refused[method] == 2 {
				return nil
			}
			refused[method]++
			return &fserror.Error{Kind: fserror.Retry, Message: "overloaded", RetryAfter: time.Millisecond}
		}
	})
	_, err := w.Write([]byte("one"))
	check(t, err)
	check(t, w.Flush(t.Context()))
	_, err = w.Write([]byte("two"))
	check(t, err)
	check(t, w.Close())
	check(t, fs.WriteFile(t.Context(), "/b", []byte("three")))
	if string(f.content("/a")) != "onetwo" || string(f.content("/b")) != "three" {
		t.Fatal("not what was written")
	}
	if f.count("Create") != 1+3 {
		t.Errorf("calls %v", f.calls)
	}
	// Nor if it lasts.
	fs = start(t, f, func(c *Config) { c.Client, c.Timeout = "other", 300*time.Millisecond })
	w = mustCreate(t, fs, "/c")
	f.set(func() {
		f.before = func(method string, _ any) error {
			if method == "Session" || method == "AllocateBlock" || method == "GrantLease" {
				return nil
			}
			return &fserror.Error{Kind: fserror.Retry, Message: "overloaded"}
		}
	})
	wantKind(t, fs.WriteFile(t.Context(), "/d", []byte("four")), fserror.Retry)
	_, err = w.Write([]byte("five"))
	check(t, err)
	wantKind(t, w.Flush(t.Context()), fserror.Retry)
	f.set(func() { f.before = nil })
	check(t, w.Close())
	if f.count("AllocateBlock") != 0 || f.count("GrantLease") != 0 {
		t.Fatalf("calls %v", f.calls)
	}
}
