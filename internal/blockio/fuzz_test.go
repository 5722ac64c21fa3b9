package blockio

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/blockstore"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// FuzzNewList: whatever a namenode says of a file's bytes, it is an error or a
// List in which each byte is found where it is.
func FuzzNewList(f *testing.F) {
	seed := func(m *pb.GetFileResponse, asked int64) {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, asked)
	}
	tail := []byte("tail")
	object := blockstore.StoredLength(100_000)
	seed(&pb.GetFileResponse{}, 0)
	seed(&pb.GetFileResponse{Tail: tail, TailCrc32C: blockstore.CRC(tail)}, 0)
	seed(&pb.GetFileResponse{
		Blocks:       []*pb.Block{{Term: 1, Seq: 2, StoredLength: object, UsedLength: 100_000}, {Term: 1, Seq: 3, StoredLength: object, UsedLength: 7}},
		BlocksOffset: 50, TailOffset: 100_057, Tail: tail, TailCrc32C: blockstore.CRC(tail),
	}, 60)
	seed(&pb.GetFileResponse{Blocks: []*pb.Block{{StoredLength: object, UsedLength: 1}}, BlocksOffset: math.MaxInt64, MoreBlocks: true}, 0)
	seed(&pb.GetFileResponse{Blocks: []*pb.Block{{StoredLength: object, UsedLength: 1}}, BlocksOffset: -5}, 0)
	seed(&pb.GetFileResponse{TailOffset: math.MaxInt64, Tail: tail, TailCrc32C: blockstore.CRC(tail)}, 0)
	f.Fuzz(func(t *testing.T, raw []byte, asked int64) {
		m := new(pb.GetFileResponse)
		if asked < 0 || proto.Unmarshal(raw, m) != nil {
			return
		}
		p, err := NewList(m, "/f", time.Now(), asked)
		if err != nil {
			return
		}
		at := p.From
		for _, s := range p.Blocks {
			if s.Off != at || s.Off < 0 || s.Used <= 0 || s.Used > s.Data || s.Off+s.Used <= s.Off {
				t.Fatalf("block %+v at %d", s, at)
			}
			for _, off := range []int64{s.Off, s.Off + s.Used - 1} {
				if got := p.Find(off); got == nil || got.Off != s.Off {
					t.Fatalf("byte %d is in %+v, found %+v", off, s, got)
				}
			}
			at += s.Used
		}
		if len(p.Tail) > 0 {
			if len(p.Blocks) > 0 && at != p.TailOff || p.TailOff < 0 {
				t.Fatalf("the blocks end at %d, the tail begins at %d", at, p.TailOff)
			}
			at = p.TailOff + int64(len(p.Tail))
		}
		if (len(p.Blocks) > 0 || len(p.Tail) > 0) && p.To != at || p.To < p.From {
			t.Fatalf("from %d to %d, the bytes end at %d", p.From, p.To, at)
		}
	})
}
