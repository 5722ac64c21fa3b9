package client

import (
	"math"
	"os"
	"path/filepath"
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

// FuzzBackupTake: whatever a namenode sends as a backup, nothing is written
// outside the folder, no file is written twice, and one whose checksum does not
// fit is not taken.
func FuzzBackupTake(f *testing.F) {
	crc := blockstore.CRC([]byte("data"))
	f.Add("VERSION", []byte("data"), true, crc, "blocks/1/2", []byte("data"), true, crc)
	f.Add("a", []byte("da"), false, uint32(0), "a", []byte("ta"), true, crc)
	f.Add("a", []byte("data"), false, uint32(0), "b", []byte("data"), true, crc)
	f.Add("a", []byte("data"), true, crc, "a/b", []byte("data"), true, crc)
	f.Add("../up", []byte("data"), true, crc, "/etc/x", []byte("data"), true, crc)
	f.Add("", []byte("data"), true, crc, ".", []byte{}, true, uint32(0))
	f.Add("a\x00b", []byte("data"), true, crc+1, "a/../../b", []byte("data"), true, crc)
	f.Fuzz(func(t *testing.T, name1 string, data1 []byte, last1 bool, crc1 uint32, name2 string, data2 []byte, last2 bool, crc2 uint32) {
		above := t.TempDir()
		root := filepath.Join(above, "part")
		if err := os.Mkdir(root, 0o750); err != nil {
			t.Fatal(err)
		}
		b := &backup{root: root, dirs: map[string]bool{root: true}}
		defer b.closeFile()
		for _, m := range []*pb.BackupResponse{
			{Name: name1, Data: data1, Last: last1, Crc32C: crc1}, {Name: name2, Data: data2, Last: last2, Crc32C: crc2}, {Txid: 3},
		} {
			files, last := b.result.Files, m.GetLast()
			if err := b.take(m); err != nil {
				if b.result.Files != files {
					t.Fatalf("a file was taken, and %v", err)
				}
				break
			}
			if last && m.GetName() != "" && (b.file != nil || b.result.Files != files+1) {
				t.Fatalf("the last of %q: %d files, then %d", m.GetName(), files, b.result.Files)
			}
		}
		if beside, err := os.ReadDir(above); err != nil || len(beside) != 1 {
			t.Fatalf("beside the folder: %v, %v", beside, err)
		}
		found := 0
		err := filepath.WalkDir(root, func(_ string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				found++
			}
			return err
		})
		if err != nil || found < int(b.result.Files) || found > int(b.result.Files)+1 {
			t.Fatalf("%d files are there, %d were taken, %v", found, b.result.Files, err)
		}
	})
}
