package files

import (
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/fserror"
)

// TestBlocksWithoutNumbers: a file that has more blocks than there are numbers is read whole, in
// larger ones, and no client of HDFS appends to it.
func TestBlocksWithoutNumbers(t *testing.T) {
	const length = 3*(maxIndex+1) + 1
	r := start(t)
	fs := r.nn.Client(t)
	if err := fs.WriteFile(t.Context(), "/f", make([]byte, length)); err != nil {
		t.Fatal(err)
	}
	if err := fs.Xattrs("/f").Set(t.Context(), hadoop.AttrXattr, []byte("blocksize=3"), client.XattrAny); err != nil {
		t.Fatal(err)
	}
	for _, offset := range []int64{0, 1000, length - 20_000, length - 1} {
		l, err := r.Locate(t.Context(), r.u, "/f", offset, length)
		if err != nil || l.Blocks.Len() == 0 || l.Last == nil || l.Last.Offset+l.Last.Length != length {
			t.Fatalf("from %d: %+v, %v", offset, l, err)
		}
		for n := range l.Blocks.Len() {
			b := l.Blocks.At(n)
			if b.Inode() != l.Info.Inode || b.Offset > offset || b.Offset+b.Length <= offset {
				t.Fatalf("block %d has %d bytes from %d, and should have that at %d", n, b.Length, b.Offset, offset)
			}
			offset = b.Offset + b.Length
		}
	}
	_, err := r.Append(t.Context(), r.u, name, "/f", false, false)
	if fserror.KindOf(err) != fserror.TooLarge {
		t.Errorf("append: %v", err)
	}
	if closed, err := r.IsClosed(t.Context(), r.u, "/f"); err != nil || !closed {
		t.Errorf("after that it is closed: %v, %v", closed, err)
	}
}
