package namespace

import (
	"fmt"
	"io"

	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/slots"
)

// imageVersion is the version of the layout, and grows with each change to it. Versions
// from oldestImage on can be read.
const (
	imageVersion = 11
	oldestImage  = 7
)

// imageCoder writes or reads a tree as an image, both by the same layout.
type imageCoder struct {
	coder
	t       *Tree
	version uint32
	prev    inode  // the previous one; numbers are relative to it
	name    []byte // of the last one; in writing preceded by its length
	read    unlinked
	place   *slots.Loader[ext]
}

// imageParts are the parts of an image in their order.
var imageParts = []struct {
	name string
	code func(*imageCoder)
}{
	{"head", (*imageCoder).head},
	{"inodes", (*imageCoder).inodes},
	{"garbage", func(im *imageCoder) { im.t.garbage.Code(im.Coder, im.t.blocks.Has) }},
	{"calls' results", func(im *imageCoder) { im.t.results.Code(im.Coder) }},
	{"leases", (*imageCoder).leases},
	{"extended attributes", func(im *imageCoder) { im.t.xattrs.Code(im.Coder, im.t.addXattr) }},
	{"ACLs", (*imageCoder).acls},
	{"inode numbers set aside", func(im *imageCoder) { im.t.cachers.CodeNumbers(im.Coder, im.t.nextInode) }},
	{"delegation tokens", func(im *imageCoder) {
		if im.version >= 11 {
			im.t.passes.Code(im.Coder, im.t.txid, im.t.time)
		}
	}},
	{"counts at the end", (*imageCoder).trailer},
}

// WriteImage writes the whole state, in pieces of about 256 KiB. It takes as
// long as the tree is large, so it is meant for clones. Errors are those of w.
func (t *Tree) WriteImage(w io.Writer) error {
	iw := codec.NewImageWriter(w, imageVersion)
	im := &imageCoder{coder: coder{&iw.Coder}, t: t, version: imageVersion}
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
	ir := codec.NewImageReader(r, oldestImage, imageVersion)
	im := &imageCoder{coder: coder{&ir.Coder}, t: newTree(), version: ir.Version}
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
	ir := codec.NewImageReader(r, oldestImage, imageVersion)
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
