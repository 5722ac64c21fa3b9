package local

import (
	"bytes"
	"errors"
	"testing"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
)

// FuzzDecodeBatch: any bytes are a batch that encodes to the same again, or no
// batch; and the rule for torn ones takes any bytes.
func FuzzDecodeBatch(f *testing.F) {
	s := newSample(f, formatVersion)
	for _, b := range s.batches {
		f.Add(s.data[b.off:b.off+b.size()], b.off, b.header.first, b.header.chain)
		f.Add(s.data[b.off:b.off+b.size()-7], b.off, b.header.first, b.header.chain)
	}
	f.Fuzz(func(t *testing.T, data []byte, off int64, first uint64, chain uint32) {
		off &= 1<<40 - 1
		if len(data) > 0 {
			_ = tornTail(data, off, expectation{first: first, chain: chain})
		}
		h, ok := decodeBatchHeader(data)
		if !ok {
			// Give the fuzzer a way past the checksums.
			if len(data) < batchHeaderSize {
				return
			}
			out, fixed := seal(bytes.Clone(data), off, batchHeader{count: le.Uint32(data[8:]), first: first, chain: chain})
			data, h = out, fixed
		}
		if (expectation{first: first, chain: chain}).check(h) != nil || len(data) != batchHeaderSize+int(h.length) {
			return
		}
		if group.Checksum(data[batchHeaderSize:]) != h.payloadCRC {
			return
		}
		buf := make([]byte, batchHeaderSize)
		var prev int64
		n := h.first
		err := decodeRecords(h, data[batchHeaderSize:], 0, func(rec journal.Record) error {
			if rec.TxID != n {
				t.Fatalf("record %d after %d", rec.TxID, n-1)
			}
			n++
			buf = group.AppendRecord(buf, &rec, prev)
			prev = rec.Time
			return nil
		})
		var framing *group.FramingError
		if err != nil && !errors.As(err, &framing) {
			t.Fatalf("%v is no framing error", err)
		}
		if err != nil {
			return
		}
		again, h2 := seal(buf, off, batchHeader{count: h.count, first: h.first, term: h.term, chain: h.chain})
		var got []journal.Record
		if err := decodeRecords(h2, again[batchHeaderSize:], 0, func(rec journal.Record) error {
			got = append(got, rec)
			return nil
		}); err != nil || len(got) != int(h.count) {
			t.Fatalf("encoded again: %d records, %v", len(got), err)
		}
	})
}

// FuzzOpenSegment: any bytes as a segment give an error or records, and the same
// records after a restart. Run it with -fuzzminimizetime=1x: the fuzzer otherwise
// spends its time on making inputs smaller.
func FuzzOpenSegment(f *testing.F) {
	for _, version := range []uint32{1, 2} {
		s := newSample(f, version)
		f.Add(s.data, false)
		f.Add(s.data[:len(s.data)-3], false)
		f.Add(append(s.data, make([]byte, 600)...), false)
	}
	s := newSample(f, formatVersion)
	f.Add(s.data[:s.last().off], true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, data []byte, fix bool) {
		if fix { // a way past the checksums
			data = bytes.Clone(data)
			if len(data) >= segHeaderSize {
				h := segmentHeader{version: 1 + uint32(data[0]&1), first: 1}
				copy(data, h.encode())
			}
			if len(data) > segHeaderSize+batchHeaderSize {
				seal(data[segHeaderSize:len(data)-1], segHeaderSize, batchHeader{count: 2, first: 1})
			}
		}
		fsys := disk(t, map[string][]byte{s.name: data})
		rep, verr := Verify(t.Context(), fsys, dir)
		last, err := replay(t, fsys)
		var damage *journal.DamageError
		if err != nil {
			if !errors.As(err, &damage) || verr == nil {
				t.Fatalf("Replay: %v, Verify: %v", err, verr)
			}
			return
		}
		if verr != nil || rep.Last != last {
			t.Fatalf("Replay up to %d, Verify %+v, %v", last, rep, verr)
		}
		// No BeginTerm: its goroutine would make the fuzzer's coverage a matter
		// of chance.
		if again, err := replay(t, fsys); err != nil || again != last {
			t.Fatalf("%d records, then %d, %v", last, again, err)
		}
	})
}
