package namespace

import (
	"fmt"
	"io"

	"github.com/google/btree"

	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// imageVersion is that of the layout: one that is changed has another number.
const imageVersion = 7

// imageCoder writes or reads a tree as an image, both by the same layout.
type imageCoder struct {
	coder
	t    *Tree
	prev inode  // the one before, from which numbers are counted
	name []byte // of that, with its length before it
	read unlinked
}

// imageParts are the parts of an image in their order.
var imageParts = []struct {
	name string
	code func(*imageCoder)
}{
	{"head", (*imageCoder).head},
	{"inodes", (*imageCoder).inodes},
	{"garbage", (*imageCoder).garbage},
	{"calls' results", (*imageCoder).sessions},
	{"leases", (*imageCoder).leases},
	{"extended attributes", (*imageCoder).xattrs},
	{"inode numbers set aside", (*imageCoder).numbers},
	{"counts at the end", (*imageCoder).trailer},
}

// WriteImage writes the whole state, in pieces of about 256 KiB. It takes as
// long as the tree is large, so it is meant for clones. Errors are those of w.
func (t *Tree) WriteImage(w io.Writer) error {
	iw := codec.NewImageWriter(w, imageVersion)
	im := &imageCoder{coder: coder{&iw.Coder}, t: t}
	for _, part := range imageParts {
		if im.Next() {
			part.code(im)
		}
	}
	return iw.Finish()
}

// ReadImage reads what WriteImage wrote, to the end of r. Everything is
// checked: sums, order, and that the parts fit each other. Errors are
// *codec.ImageError. It takes memory only for what it has really read.
func ReadImage(r io.Reader) (*Tree, error) {
	ir := codec.NewImageReader(r, imageVersion)
	im := &imageCoder{coder: coder{&ir.Coder}, t: newTree()}
	for _, part := range imageParts {
		if im.Next() {
			part.code(im)
		}
		if !ir.OK() {
			return nil, ir.Failure(part.name)
		}
	}
	if err := ir.Finish(); err != nil {
		return nil, err
	}
	return im.t, nil
}

// CheckImage reads an image to its end, as ReadImage does, and returns the last txid
// in it. Of what is in it the checksums are checked, not whether it fits: so it takes
// the memory of one chunk, and as long as reading takes.
func CheckImage(r io.Reader) (txid uint64, err error) {
	ir := codec.NewImageReader(r, imageVersion)
	ir.Next()
	ir.U64(&txid)
	ir.Skip()
	if !ir.OK() {
		return 0, ir.Failure("txid")
	}
	return txid, ir.Finish()
}

// wrong is fail with details.
func (im *imageCoder) wrong(format string, args ...any) {
	im.Fail(fmt.Sprintf(format, args...))
}

// items codes the items of a B-tree. add puts one that was read into the tree, or
// returns false if it cannot be there; last is the one before.
func items[T any](im *imageCoder, tree *btree.BTreeG[T], less func(a, b T) bool, code func(*T), add func(last, x T) bool) {
	var x, last, none T
	if im.Writes() {
		im.Put(uint64(tree.Len())) //nolint:gosec // a length
		tree.Ascend(func(item T) bool {
			x = item
			code(&x)
			return im.Next()
		})
		return
	}
	for i := range im.Number(63) {
		x = none
		code(&x)
		if im.OK() && (i > 0 && !less(last, x) || !add(last, x)) {
			im.wrong("item %d is out of order, there twice, or does not fit the rest", i)
		}
		if !im.Next() {
			return
		}
		last = x
	}
}
