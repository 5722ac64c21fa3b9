package client

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/blockstore"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// FuzzNewPage: whatever a namenode says of a file's bytes, it is an error or a
// page in which each byte is found where it is.
func FuzzNewPage(f *testing.F) {
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
		p, err := (&Reader{path: "/f"}).newPage(m, time.Now(), asked)
		if err != nil {
			return
		}
		at := p.from
		for _, s := range p.spans {
			if s.off != at || s.off < 0 || s.used <= 0 || s.used > s.data || s.off+s.used <= s.off {
				t.Fatalf("span %+v at %d", s, at)
			}
			for _, off := range []int64{s.off, s.off + s.used - 1} {
				if got := p.find(off); got == nil || got.off != s.off {
					t.Fatalf("byte %d is in %+v, found %+v", off, s, got)
				}
			}
			at += s.used
		}
		if len(p.tail) > 0 {
			if len(p.spans) > 0 && at != p.tailOff || p.tailOff < 0 {
				t.Fatalf("the blocks end at %d, the tail begins at %d", at, p.tailOff)
			}
			at = p.tailOff + int64(len(p.tail))
		}
		if (len(p.spans) > 0 || len(p.tail) > 0) && p.to != at || p.to < p.from {
			t.Fatalf("from %d to %d, the bytes end at %d", p.from, p.to, at)
		}
	})
}
