package archive

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/local"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
)

var freeze = flag.Bool("freeze", false, "write the frozen object of the present version, once")

var (
	testID  = [16]byte{1, 2, 3, 0xff}
	records = []journal.Record{
		{TxID: 7, Time: 1_700_000_000_000, Type: 1, Body: []byte("first")},
		{TxID: 8, Time: 1_700_000_000_000, Type: 41},
		{TxID: 9, Time: 1_700_000_000_250, Type: 255, Body: bytes.Repeat([]byte{0, 1, 0xfe}, 200)},
	}
)

func sealed(term uint64, recs ...journal.Record) (Segment, []byte) {
	b := newBatch()
	for i := range recs {
		b.add(&recs[i])
	}
	return b.seal(testID, term)
}

// TestFrozenObject: an object that an earlier release put is read for ever, and is still
// written so.
func TestFrozenObject(t *testing.T) {
	const file, name = "../../testdata/frozen/archive-1", "archive-00000000000000000009-00000000000000000007-0000000000000003-00000001700000000250"
	s, object := sealed(3, records...)
	if *freeze {
		if err := os.WriteFile(file, object, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	frozen, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if s.Name() != name || !bytes.Equal(object, frozen) {
		t.Errorf("written is %s, %x", s.Name(), object)
	}
	parsed, ok := parseSegment(name)
	if !ok || parsed != s {
		t.Fatalf("the name is read as %+v", parsed)
	}
	for from := uint64(7); from <= 10; from++ {
		next := from
		if err := decode(testID, parsed, frozen, from, func(r journal.Record) error {
			want := records[next-7]
			if r.TxID != want.TxID || r.Time != want.Time || r.Type != want.Type || !bytes.Equal(r.Body, want.Body) {
				t.Errorf("record %d is %+v", next, r)
			}
			next++
			return nil
		}); err != nil || next != 10 {
			t.Errorf("from %d: %v, to %d", from, err, next)
		}
	}
}

// TestDamagedObject: whatever byte of an object is another one, or missing, the object is
// refused, and named.
func TestDamagedObject(t *testing.T) {
	s, object := sealed(3, records...)
	refused := func(what string, object []byte) {
		t.Helper()
		err := decode(testID, s, object, 0, func(journal.Record) error { return nil })
		if !errors.Is(err, fserror.Damaged) && !errors.Is(err, fserror.Unsupported) || !strings.Contains(err.Error(), s.Name()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range object {
		bad := bytes.Clone(object)
		bad[i] ^= 0x40
		refused(fmt.Sprintf("byte %d", i), bad)
		refused(fmt.Sprintf("cut to %d", i), object[:i])
	}
	refused("one more byte", append(bytes.Clone(object), 0))
	_, other := sealed(4, records...)
	refused("another's object", other)
	newer := bytes.Clone(object)
	newer[16] = version + 1
	le.PutUint32(newer[headerCRC:], blockstore.CRC(newer[:headerCRC]))
	if err := decode(testID, s, newer, 0, nil); !errors.Is(err, fserror.Unsupported) {
		t.Errorf("a newer version: %v", err)
	}
	for _, name := range []string{"archive-", "archive-1-1-1-1", "archive-00000000000000000001-00000000000000000002-0000000000000003-00000000000000000000", "base-00000000000000000001"} {
		if s, ok := parseSegment(name); ok {
			t.Errorf("%s is read as %+v", name, s)
		}
	}
}

func openStore(t *testing.T) *local.Store {
	t.Helper()
	st, err := local.Open(local.Config{Dir: t.TempDir(), NamespaceID: testID, Secret: make([]byte, 32), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// TestCatalog: which records count, of objects that overlap, of reigns and histories that
// differ, and where there are holes. A segment is FIRST-LAST@TERM, a base TXID@TERM.
func TestCatalog(t *testing.T) {
	for name, c := range map[string]struct {
		segments, bases string
		want, kept      string
	}{
		"nothing":                      {},
		"one reign":                    {"1-5@1 6-6@1 7-20@1", "0@1 6@1", "1-5@1 6-6@1 7-20@1", "6@1 0@1"},
		"an answer was lost":           {"1-5@1 6-8@1 6-12@1", "0@1", "1-5@1 6-12@1", "0@1"},
		"a deposed one archives, too":  {"1-5@1 6-9@2 6-8@1 9-11@1", "", "1-5@1 6-9@2", ""},
		"and further than the new one": {"1-5@1 6-50@1 6-9@2", "20@1", "1-5@1 6-9@2", ""},
		"an older copy was put back":   {"1-30@1 31-60@1 41-70@2", "10@1 45@1 41@2", "1-30@1 31-40@1 41-70@2", "41@2 10@1"},
		"a hole":                       {"1-5@1 20-30@1", "19@1", "1-5@1 20-30@1", "19@1"},
		"three histories":              {"1-90@1 41-80@2 21-60@3", "30@1 50@2 55@3", "1-20@1 21-60@3", "55@3"},
	} {
		t.Run(name, func(t *testing.T) {
			st := openStore(t)
			put := func(name string) {
				if err := blockstore.PutBytes(t.Context(), st, name, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			for _, text := range strings.Fields(c.segments) {
				var s Segment
				if _, err := fmt.Sscanf(text, "%d-%d@%d", &s.First, &s.Last, &s.Term); err != nil {
					t.Fatal(err)
				}
				s.Time = int64(s.Last)
				put(s.Name())
			}
			for _, text := range strings.Fields(c.bases) {
				var txid, term uint64
				if _, err := fmt.Sscanf(text, "%d@%d", &txid, &term); err != nil {
					t.Fatal(err)
				}
				put(fmt.Sprintf("%s%020d-%016x-00", BasePrefix, txid, term))
			}
			got, err := Open(t.Context(), st, testID, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			var spans, bases []string
			for _, s := range got.spans {
				spans = append(spans, fmt.Sprintf("%d-%d@%d", s.from, s.to, s.Term))
				if s.time > int64(s.to) {
					t.Errorf("record %d is taken for later than it is: %d", s.to, s.time)
				}
			}
			for _, b := range got.bases {
				bases = append(bases, fmt.Sprintf("%d@%d", b.TxID, b.term))
			}
			if s, b := strings.Join(spans, " "), strings.Join(bases, " "); s != c.want || b != c.kept {
				t.Errorf("records %s, bases %s; want %s, %s", s, b, c.want, c.kept)
			}
		})
	}
}

// TestNoMoment: of an archive without a base nothing can be had.
func TestNoMoment(t *testing.T) {
	c, err := Open(t.Context(), openStore(t), testID, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tree(t.Context(), At{}); !errors.Is(err, fserror.NotFound) {
		t.Error(err)
	}
}
