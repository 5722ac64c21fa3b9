package backup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// FuzzTake: whatever a namenode sends as a backup, nothing is written
// outside the folder, no file is written twice, and one whose checksum does not
// fit is not taken.
func FuzzTake(f *testing.F) {
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
		b := &folder{root: root, dirs: map[string]bool{root: true}}
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
