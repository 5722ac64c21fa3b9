package blocktest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// ObjectsOpener opens a new, empty store of named objects, and a second view of
// the same one, as another process has it.
type ObjectsOpener func(t *testing.T) (one, another blockstore.Objects)

// RunObjects runs the suite of blockstore.Objects.
func RunObjects(t *testing.T, open ObjectsOpener) {
	for _, c := range []struct {
		name string
		test func(*objects)
	}{
		{"PutAndGet", (*objects).putAndGet},
		{"FirstPutWins", (*objects).firstPutWins},
		{"FirstPutWinsConcurrently", (*objects).firstPutWinsConcurrently},
		{"WrongBytes", (*objects).wrongBytes},
		{"PartOfAReader", (*objects).partOfAReader},
		{"Ranges", (*objects).ranges},
		{"NotFound", (*objects).notFound},
		{"List", (*objects).list},
		{"ListPages", (*objects).listPages},
		{"Delete", (*objects).deleteNames},
		{"Names", (*objects).names},
		{"Canceled", (*objects).canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			one, another := open(t)
			c.test(&objects{T: t, one: one, another: another})
		})
	}
}

// objects is one test under way.
type objects struct {
	*testing.T
	one, another blockstore.Objects
}

func (s *objects) try(o blockstore.Objects, name string, body []byte) error {
	return o.PutNamed(s.Context(), name, bytes.NewReader(body), int64(len(body)), blockstore.CRC(body))
}

func (s *objects) put(name string, body []byte) {
	s.Helper()
	if err := s.try(s.one, name, body); err != nil {
		s.Fatalf("put %s: %v", name, err)
	}
}

func (s *objects) get(o blockstore.Objects, name string, offset, length int64) []byte {
	s.Helper()
	r, err := o.GetNamed(s.Context(), name, offset, length)
	if err != nil {
		s.Fatalf("get %s: %v", name, err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		s.Fatalf("get %s: %v", name, err)
	}
	return got
}

// content checks what is under a name, in both views; nil: nothing.
func (s *objects) content(name string, want []byte) {
	s.Helper()
	for _, o := range []blockstore.Objects{s.one, s.another} {
		info, crc, err := o.StatNamed(s.Context(), name)
		if want == nil {
			if !errors.Is(err, fserror.NotFound) {
				s.Fatalf("stat %s: %v, want NotFound", name, err)
			}
			if _, err := o.GetNamed(s.Context(), name, 0, -1); !errors.Is(err, fserror.NotFound) {
				s.Fatalf("get %s: %v, want NotFound", name, err)
			}
			continue
		}
		if err != nil || info.Name != name || info.Length != int64(len(want)) || crc != blockstore.CRC(want) {
			s.Fatalf("stat %s: %+v %08x %v", name, info, crc, err)
		}
		if d := time.Since(info.Stored); !info.Stored.IsZero() && (d < -time.Minute || d > time.Hour) { // a file system in memory has no times
			s.Fatalf("stat %s: stored %s ago", name, d)
		}
		if got := s.get(o, name, 0, -1); !bytes.Equal(got, want) {
			s.Fatalf("%s: %d bytes, not the %d that were put", name, len(got), len(want))
		}
	}
}

func body(n int, seed byte) []byte {
	obj, _ := object(n, seed)
	return obj[:n]
}

func (s *objects) putAndGet() {
	for i, n := range []int{1, 100, 3<<20 + 7} {
		name := []string{"a", "image-00000000000000000017", "a.name_.tmp"}[i]
		s.put(name, body(n, byte(i)))
		s.content(name, body(n, byte(i)))
	}
}

func (s *objects) firstPutWins() {
	first, second := body(50_000, 1), body(50_000, 2)
	s.put("x", first)
	for _, o := range []blockstore.Objects{s.one, s.another} {
		for _, b := range [][]byte{second, first, second[:10]} {
			if err := s.try(o, "x", b); !errors.Is(err, fserror.Exists) {
				s.Fatalf("a second put: %v, want Exists", err)
			}
		}
	}
	s.content("x", first)
}

func (s *objects) firstPutWinsConcurrently() {
	const writers = 8
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			o := s.one
			if w%2 == 1 {
				o = s.another
			}
			errs[w] = s.try(o, "race", body(100_000+w, byte(w)))
		})
	}
	wg.Wait()
	winner := -1
	for w, err := range errs {
		switch {
		case err == nil && winner < 0:
			winner = w
		case err == nil:
			s.Fatalf("%d and %d won", winner, w)
		case !errors.Is(err, fserror.Exists):
			s.Errorf("%v, want Exists", err)
		}
	}
	if winner < 0 {
		s.Fatal("nobody won")
	}
	s.content("race", body(100_000+winner, byte(winner)))
}

func (s *objects) wrongBytes() {
	good := body(50_000, 1)
	bad := slices.Clone(good)
	bad[40_000] ^= 1
	if err := s.one.PutNamed(s.Context(), "x", bytes.NewReader(bad), int64(len(bad)), blockstore.CRC(good)); !errors.Is(err, fserror.Damaged) {
		s.Fatalf("wrong bytes: %v, want Damaged", err)
	}
	if err := s.one.PutNamed(s.Context(), "x", bytes.NewReader(nil), 0, 0); !errors.Is(err, fserror.InvalidArgument) {
		s.Fatalf("no bytes: %v, want InvalidArgument", err)
	}
	s.content("x", nil)
	s.put("x", good) // the name is not spoiled
	s.content("x", good)
}

func (s *objects) partOfAReader() {
	all := body(10_000, 3)
	if err := s.one.PutNamed(s.Context(), "part", bytes.NewReader(all), 9_000, blockstore.CRC(all[:9_000])); err != nil {
		s.Fatal(err)
	}
	s.content("part", all[:9_000])
}

func (s *objects) ranges() {
	b := body(300_000, 4)
	s.put("x", b)
	size := int64(len(b))
	for _, r := range [][2]int64{{0, 1}, {0, size}, {size - 1, 1}, {1, -1}, {size - 1, -1}, {1000, 65536}, {size - 10, 1000}, {5, 0}} {
		end := size
		if r[1] >= 0 {
			end = min(r[0]+r[1], size)
		}
		if got := s.get(s.another, "x", r[0], r[1]); !bytes.Equal(got, b[r[0]:end]) {
			s.Errorf("range %v: %d other bytes", r, len(got))
		}
	}
	for _, r := range [][2]int64{{size, 1}, {size, -1}, {size, 0}, {size + 5, 1}, {-1, 1}, {0, -2}} {
		if _, err := s.one.GetNamed(s.Context(), "x", r[0], r[1]); !errors.Is(err, fserror.InvalidArgument) {
			s.Errorf("range %v: %v, want InvalidArgument", r, err)
		}
	}
}

func (s *objects) notFound() {
	s.content("nothing", nil)
	s.wantList("", "", 10)
	if err := s.one.DeleteNamed(s.Context(), "nothing"); err != nil {
		s.Error(err)
	}
	if err := s.one.DeleteNamed(s.Context()); err != nil {
		s.Error(err)
	}
}

func (s *objects) wantList(prefix, after string, limit int, want ...string) {
	s.Helper()
	infos, err := s.another.ListNamed(s.Context(), prefix, after, limit)
	if err != nil {
		s.Fatal(err)
	}
	var got []string
	for _, i := range infos {
		got = append(got, i.Name)
	}
	if !slices.Equal(got, want) {
		s.Errorf("list %q after %q, at most %d: %q, want %q", prefix, after, limit, got, want)
	}
}

// sorted are names whose order is easily got wrong.
func sorted() []string {
	return []string{"a-", "a-b", "a.b", "a0", "a_b", "aa", "image-1", "image-10", "image-2", strings.Repeat("x", 200)}
}

func (s *objects) list() {
	names := sorted()
	for i := range names { // in another order
		s.put(names[(i*7+3)%len(names)], body(10+i, byte(i)))
	}
	s.wantList("", "", 100, names...)
	s.wantList("", "", 3, names[:3]...)
	s.wantList("", "a.b", 100, names[3:]...)
	s.wantList("", "a.c", 100, names[3:]...)
	s.wantList("a-", "", 100, names[:2]...)
	s.wantList("a", "a-b", 1, names[2])
	s.wantList("image-", "", 100, "image-1", "image-10", "image-2")
	s.wantList("image-", "image-2", 100)
	s.wantList("image-", "a", 100, "image-1", "image-10", "image-2")
	s.wantList("c", "", 100)
	s.wantList("", "", 0)
	for _, bad := range []string{"A", "..", "a/"} {
		if _, err := s.one.ListNamed(s.Context(), bad, "", 10); !errors.Is(err, fserror.InvalidArgument) {
			s.Errorf("prefix %q: %v, want InvalidArgument", bad, err)
		}
	}
	infos, err := s.one.ListNamed(s.Context(), names[1], "", 1)
	if err != nil || len(infos) != 1 || infos[0].Length < 10 {
		s.Errorf("%+v, %v", infos, err)
	}
}

func (s *objects) listPages() {
	names := sorted()
	for _, name := range names {
		s.put(name, []byte("x"))
	}
	for limit := 1; limit <= len(names); limit++ {
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			page, err := s.one.ListNamed(s.Context(), "", after, limit)
			if err != nil {
				s.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			for _, i := range page {
				got = append(got, i.Name)
			}
		}
		if !slices.Equal(got, names) {
			s.Fatalf("pages of %d: %q, want %q", limit, got, names)
		}
	}
}

func (s *objects) deleteNames() {
	for _, name := range []string{"a", "b.c", "d"} {
		s.put(name, body(100, 1))
	}
	if err := s.another.DeleteNamed(s.Context(), "a", "never-was", "b.c"); err != nil {
		s.Fatal(err)
	}
	s.content("a", nil)
	s.content("b.c", nil)
	s.content("d", body(100, 1))
	s.wantList("", "", 10, "d")
	// A bad name among them: nothing goes.
	if err := s.one.DeleteNamed(s.Context(), "d", "../d"); !errors.Is(err, fserror.InvalidArgument) {
		s.Errorf("%v, want InvalidArgument", err)
	}
	s.content("d", body(100, 1))
	s.put("a", body(200, 2)) // a name may come back
	s.content("a", body(200, 2))
}

func (s *objects) names() {
	for _, name := range []string{"", "/a", "a/", "a/b", "../x", "x/..", ".", "A", "a b", "a+b", "a%2fb", strings.Repeat("a", 201)} {
		_, gerr := s.one.GetNamed(s.Context(), name, 0, -1)
		_, _, serr := s.one.StatNamed(s.Context(), name)
		for what, err := range map[string]error{"put": s.try(s.one, name, []byte("x")), "get": gerr, "stat": serr, "delete": s.one.DeleteNamed(s.Context(), name)} {
			if !errors.Is(err, fserror.InvalidArgument) {
				s.Errorf("%s %.20q: %v, want InvalidArgument", what, name, err)
			}
		}
	}
	s.put(strings.Repeat("a", 200), []byte("x"))
	s.content(strings.Repeat("a", 200), []byte("x"))
}

func (s *objects) canceled() {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	b := body(1<<20, 1)
	if err := s.one.PutNamed(ctx, "x", bytes.NewReader(b), int64(len(b)), blockstore.CRC(b)); err == nil {
		s.Error("a put that was called off says that it is done")
	}
	s.content("x", nil)
}
