package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// noise is reproducible bytes.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func mustCreate(t *testing.T, fs *FS, path string) *Writer {
	t.Helper()
	w, err := fs.Create(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, kind fserror.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error %v, want kind %v", err, kind)
	}
}

func TestSmallFileIsTwoCalls(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	_, err := w.Write([]byte("hello"))
	check(t, err)
	check(t, w.Close())
	if got := string(f.content("/a")); got != "hello" {
		t.Fatalf("content %q", got)
	}
	if f.count("Create") != 1 || f.count("Close") != 1 || f.count("AppendTail") != 0 {
		t.Fatalf("calls %v", f.calls)
	}
	wantKind(t, w.Close(), fserror.Closed)
	_, err = w.Write([]byte("x"))
	wantKind(t, err, fserror.Closed)
	wantKind(t, w.Flush(t.Context()), fserror.Closed)
}

func TestWriteFileIsOneCall(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	check(t, fs.WriteFile(t.Context(), "/a", noise(1024)))
	if f.count("Create") != 1 || f.count("Close") != 0 || !bytes.Equal(f.content("/a"), noise(1024)) {
		t.Fatalf("calls %v", f.calls)
	}
	big := noise(1 << 20)
	check(t, fs.WriteFile(t.Context(), "/b", big))
	if !bytes.Equal(f.content("/b"), big) || f.isOpen("/b") {
		t.Fatal("a large file is not what was written")
	}
}

// Bytes in all sizes, flushed at all moments, come out in order.
func TestWriteSizes(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		path := fmt.Sprintf("/f%d", round)
		w := mustCreate(t, fs, path)
		var want []byte
		for range 1 + r.IntN(12) {
			n := []int{1, 100, 5 << 10, 70 << 10, 256 << 10, 600 << 10}[r.IntN(6)]
			p := noise(n)
			want = append(want, p...)
			k, err := w.Write(p)
			if err != nil || k != n {
				t.Fatalf("Write: %d, %v", k, err)
			}
			if r.IntN(3) == 0 {
				check(t, w.Flush(t.Context()))
				if w.Durable() != int64(len(want)) || !bytes.Equal(f.content(path), want) {
					t.Fatal("a flush left something out")
				}
			}
			if r.IntN(4) == 0 { // continue as another opening
				check(t, w.Close())
				var err error
				w, err = fs.Append(t.Context(), path, WithExpectedLength(int64(len(want))))
				check(t, err)
			}
		}
		check(t, w.Close())
		if !bytes.Equal(f.content(path), want) {
			t.Fatalf("round %d: the file is not what was written", round)
		}
		got, err := fs.ReadFile(t.Context(), path)
		check(t, err)
		if !bytes.Equal(got, want) {
			t.Fatalf("round %d: read is not what was written", round)
		}
	}
}

// A client whose blocks are smaller than the tail it appends to.
func TestAppendToLongTail(t *testing.T) {
	f := newFake()
	fs := start(t, f, func(c *Config) { c.BlockSize = 10_000 })
	want := noise(35_000)
	f.set(func() {
		f.files["/a"] = &fakeFile{path: "/a", inode: 7, tail: bytes.Clone(want)}
		f.inodes[7] = f.files["/a"]
	})
	w, err := fs.Append(t.Context(), "/a")
	check(t, err)
	more := noise(23_456)
	_, err = w.Write(more)
	check(t, err)
	check(t, w.Close())
	if !bytes.Equal(f.content("/a"), append(want, more...)) {
		t.Fatal("not what was there and what was appended")
	}
}

func TestConcurrentWritesAndFlushes(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			line := []byte(strings.Repeat(string(rune('a'+g)), 999) + "\n")
			for range 50 {
				if _, err := w.Write(line); err != nil {
					t.Error(err)
				}
				if err := w.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	check(t, w.Close())
	lines := bytes.Split(bytes.TrimSuffix(f.content("/a"), []byte("\n")), []byte("\n"))
	if len(lines) != 400 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, l := range lines {
		if len(l) != 999 || strings.Count(string(l), string(l[0])) != 999 {
			t.Fatal("a torn line")
		}
	}
	if n := f.count("AppendTail") + f.count("Commit"); n > 400 {
		t.Fatalf("%d calls for 400 flushes", n)
	}
}

func TestReadFrom(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	want := noise(3 << 20)
	n, err := io.Copy(w, struct{ io.Reader }{bytes.NewReader(want)})
	if err != nil || n != int64(len(want)) {
		t.Fatalf("%d, %v", n, err)
	}
	check(t, w.Close())
	if !bytes.Equal(f.content("/a"), want) {
		t.Fatal("not what was copied")
	}
}

var lostReply = status.Error(codes.Unavailable, "the connection broke")

// Scenario 40, the client's half: each reply lost once; everything happens once.
func TestScenario40LostReplies(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	var mu sync.Mutex
	seen := map[string]bool{}
	f.set(func() {
		f.after = func(method string, req any) error {
			mu.Lock()
			defer mu.Unlock()
			key := fmt.Sprint(method, req)
			if seen[key] {
				return nil
			}
			seen[key] = true
			return lostReply
		}
	})
	w := mustCreate(t, fs, "/a")
	var want []byte
	for _, n := range []int{10, 50_000, 300_000, 20} {
		p := noise(n)
		want = append(want, p...)
		_, err := w.Write(p)
		check(t, err)
		check(t, w.Flush(t.Context()))
	}
	_, err := w.Write([]byte("end"))
	check(t, err)
	check(t, w.Close())
	if !bytes.Equal(f.content("/a"), append(want, "end"...)) {
		t.Fatal("not what was written")
	}
	check(t, fs.Mkdir(t.Context(), "/d", 0o755))
	f.set(func() {
		if f.seq != 5+uint64(f.calls["AllocateBlock"]) && len(f.results) != 3 {
			t.Errorf("%d results for 3 calls that change the tree", len(f.results))
		}
	})
}

// Bytes of the copy of a machine, which has the same token, are not ours because they are as many.
func TestBytesOfAnotherAreNotOurs(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	_, err := w.Write([]byte("ours"))
	check(t, err)
	f.set(func() { f.files["/a"].tail = []byte("hers") })
	wantKind(t, w.Flush(t.Context()), fserror.NotAtEnd)
	if n := w.Durable(); n != 0 {
		t.Errorf("%d bytes are said to be durable", n)
	}
	wantKind(t, w.Close(), fserror.NotAtEnd)
}

// The time of one attempt may be over at the namenode first, which says so: the call is repeated until
// it is answered, as after the client's own.
func TestTimeOfAnAttemptIsOver(t *testing.T) {
	for _, kind := range []fserror.Kind{fserror.Deadline, fserror.Canceled} {
		for _, happened := range []bool{false, true} {
			f := newFake()
			fs := start(t, f)
			seen := map[string]bool{}
			late := func(method string, _ any) (err error) {
				f.set(func() {
					if !seen[method] {
						err = wire.ToStatus(&fserror.Error{Kind: kind, Message: "its time is over"})
					}
					seen[method] = true
				})
				return err
			}
			f.set(func() {
				if f.before = late; happened {
					f.before, f.after = nil, late
				}
			})
			w := mustCreate(t, fs, "/a")
			_, err := w.Write([]byte("bytes"))
			check(t, err)
			check(t, w.Flush(t.Context()))
			check(t, w.Close())
			if got := string(f.content("/a")); got != "bytes" || !seen["Create"] || !seen["AppendTail"] || !seen["Close"] {
				t.Errorf("%v, %t: %q after %v", kind, happened, got, seen)
			}
		}
	}
}

// The namenode has no room for tails: flushes and closes become blocks.
func TestTailBudgetUsedUp(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	f.set(func() {
		f.before = func(method string, req any) error {
			full := &fserror.Error{Kind: fserror.Retry, Reason: "tail budget", RetryAfter: time.Hour}
			switch r := req.(type) {
			case *pb.AppendTailRequest:
				return full
			case *pb.CloseRequest:
				if len(r.Data) > 0 {
					return full
				}
			case *pb.CreateRequest:
				if len(r.Data) > 0 {
					return full
				}
			}
			return nil
		}
	})
	w := mustCreate(t, fs, "/a")
	_, err := w.Write([]byte("one"))
	check(t, err)
	check(t, w.Flush(t.Context()))
	_, err = w.Write([]byte("two"))
	check(t, err)
	check(t, w.Close())
	if got := string(f.content("/a")); got != "onetwo" || f.isOpen("/a") {
		t.Fatalf("content %q", got)
	}
	check(t, fs.WriteFile(t.Context(), "/b", []byte("three")))
	if got := string(f.content("/b")); got != "three" {
		t.Fatalf("content %q", got)
	}
}

func TestPutFailuresAreTriedUnderAnotherKey(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	f.set(func() {
		f.put = func(n int) int {
			if n%2 == 1 {
				return http.StatusInternalServerError
			}
			return 0
		}
	})
	w := mustCreate(t, fs, "/a")
	want := noise(1 << 20)
	_, err := w.Write(want)
	check(t, err)
	check(t, w.Close())
	if !bytes.Equal(f.content("/a"), want) {
		t.Fatal("not what was written")
	}
}

// A store without room: the error surfaces, nothing is dropped, and once there
// is room the same Writer continues.
func TestNoSpaceAndThenSpace(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	want := noise(600 << 10)
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.put = func(int) int { return http.StatusInsufficientStorage } }) // some blocks are under way
	wantKind(t, w.Flush(t.Context()), fserror.NoSpace)
	f.set(func() { f.put = nil })
	check(t, w.Flush(t.Context()))
	check(t, w.Close())
	if !bytes.Equal(f.content("/a"), want) {
		t.Fatal("not what was written")
	}
}

func TestCloseWithoutRoomClosesAtFlushed(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	_, err := w.Write([]byte("flushed"))
	check(t, err)
	check(t, w.Flush(t.Context()))
	f.set(func() { f.put = func(int) int { return http.StatusInsufficientStorage } })
	_, err = w.Write(noise(100 << 10))
	check(t, err)
	wantKind(t, w.Close(), fserror.NoSpace)
	if f.isOpen("/a") || string(f.content("/a")) != "flushed" {
		t.Fatalf("open %v, %d bytes", f.isOpen("/a"), len(f.content("/a")))
	}
}

func TestAbortAndDetach(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	_, err := w.Write([]byte("keep"))
	check(t, err)
	check(t, w.Flush(t.Context()))
	_, err = w.Write([]byte("drop"))
	check(t, err)
	check(t, w.Abort())
	if string(f.content("/a")) != "keep" || f.isOpen("/a") {
		t.Fatalf("content %q", f.content("/a"))
	}
	w = mustCreate(t, fs, "/b")
	check(t, w.Detach())
	wantKind(t, w.Close(), fserror.Closed)
	if !f.isOpen("/b") || f.count("Close") != 1 {
		t.Fatal("detaching closed the file")
	}
	if w.Context().Err() == nil {
		t.Fatal("the context of a detached writer lives")
	}
}

// Scenario 25: fenced between flush and close.
func TestScenario25RecoverBetweenFlushAndClose(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	w := mustCreate(t, fs, "/a")
	_, err := w.Write([]byte("flushed"))
	check(t, err)
	check(t, w.Flush(t.Context()))
	f.fence("/a")
	wantKind(t, w.Close(), fserror.LeaseLost)
	wantKind(t, w.Close(), fserror.Closed)
	if string(f.content("/a")) != "flushed" {
		t.Fatal("flushed bytes are gone")
	}
	if !errors.Is(context.Cause(w.Context()), fserror.LeaseLost) {
		t.Fatalf("cause %v", context.Cause(w.Context()))
	}
}

// Scenario 51: the client is closed with open files.
func TestScenario51CloseWithOpenFiles(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	for i := range 20 {
		w := mustCreate(t, fs, fmt.Sprint("/f", i))
		_, err := w.Write([]byte("x"))
		check(t, err)
	}
	check(t, fs.Close())
	for i := range 20 {
		if f.isOpen(fmt.Sprint("/f", i)) || string(f.content(fmt.Sprint("/f", i))) != "x" {
			t.Fatal("a file is open or empty")
		}
	}
	_, err := fs.Create(t.Context(), "/late")
	wantKind(t, err, fserror.Closed)
	_, err = fs.Stat(t.Context(), "/f0")
	wantKind(t, err, fserror.Closed)
	wantKind(t, fs.Close(), fserror.Closed)
}

// Scenario 52: close is not confirmed; the file is closed later, though it has another name and may
// not be recovered by its user.
func TestScenario52UnconfirmedClose(t *testing.T) {
	f := newFake()
	fs := start(t, f, func(c *Config) { c.Timeout = 100 * time.Millisecond })
	w := mustCreate(t, fs, "/a")
	file := f.files["/a"]
	f.set(func() {
		f.before = func(method string, _ any) error {
			if method == "Close" {
				return fserror.New(fserror.Unavailable, "", "", "no")
			}
			return nil
		}
	})
	wantKind(t, w.Close(), fserror.Unavailable)
	f.set(func() {
		delete(f.files, "/a")
		f.before = func(method string, _ any) error {
			if method == "Recover" {
				return fserror.New(fserror.Permission, "", "", "no")
			}
			return nil
		}
	})
	f.mu.Lock()
	for file.open != nil {
		f.changed.Wait()
	}
	f.mu.Unlock()
}

func TestWriteFiles(t *testing.T) {
	f := newFake()
	fs := start(t, f)
	check(t, fs.WriteFile(t.Context(), "/f77", []byte("old")))
	var files []FileData
	for i := range 2500 {
		files = append(files, FileData{Path: fmt.Sprint("/f", i), Data: noise(i % 200)})
	}
	files = append(files, FileData{Path: "/big", Data: noise(500 << 10)}, FileData{Path: "no/slash"})
	errs, err := fs.WriteFiles(t.Context(), files)
	check(t, err)
	for i, e := range errs {
		switch {
		case i == 77:
			wantKind(t, e, fserror.Exists)
			if !strings.Contains(e.Error(), "/f77") {
				t.Fatal(e)
			}
		case i == len(files)-1:
			wantKind(t, e, fserror.InvalidPath)
		case e != nil:
			t.Fatal(i, e)
		case !bytes.Equal(f.content(files[i].Path), files[i].Data):
			t.Fatalf("%s is not what was written", files[i].Path)
		}
	}
}
