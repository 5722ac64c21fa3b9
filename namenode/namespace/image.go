package namespace

import (
	"fmt"
	"io"

	"github.com/leasefs/leasefs/namenode/namespace/codec"
	"github.com/leasefs/leasefs/namenode/namespace/imaging"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
)

// oldestImage is the version of the layout from which on images can be read, up to that of the
// newest level. A tree is written in the version of its own level (package levels).
const oldestImage = 7

// newestImage is the version of the newest level.
func newestImage() uint32 { return levels.At(levels.Newest()).Image }

// imageCoder writes or reads a tree as an image, both by the same layout.
type imageCoder struct {
	coder
	t       *Tree
	version uint32
	nodes   imaging.Inodes
}

// sinceLevels is from which version on an image says at which level it is.
const sinceLevels = codec.SinceRelease

// imageParts are the parts of an image in their order, each since a version.
var imageParts = []struct {
	name  string
	since uint32
	code  func(*imageCoder)
}{
	{"level", sinceLevels, func(im *imageCoder) { im.t.at.CodeImage(im.Coder, im.version) }},
	{"head", oldestImage, (*imageCoder).head},
	{"trash", 12, func(im *imageCoder) { im.t.trash.Code(im.Coder, im.t.nextInode, im.t.reigned) }},
	{"quotas", 13, func(im *imageCoder) { im.t.quotas.Code(im.Coder) }},
	{"inodes", oldestImage, (*imageCoder).inodes},
	{"garbage", oldestImage, func(im *imageCoder) { im.t.garbage.Code(im.Coder, im.t.blocks.Has) }},
	{"calls' results", oldestImage, func(im *imageCoder) { im.t.ResultTable.Code(im.Coder) }},
	{"leases", oldestImage, (*imageCoder).leases},
	{"extended attributes", oldestImage, func(im *imageCoder) { im.t.xattrs.Code(im.Coder, im.t.readXattr) }},
	{"ACLs", 10, func(im *imageCoder) { im.t.acls.Code(im.Coder, im.t.UserNames.Len(), im.t.addACL, im.t.countACL) }},
	{"inode numbers set aside", oldestImage, func(im *imageCoder) { im.t.CacherTable.CodeNumbers(im.Coder, im.t.nextInode) }},
	{"delegation tokens", 11, func(im *imageCoder) { im.t.PassTable.Code(im.Coder, im.t.txid, im.t.time) }},
	{"snapshots", 13, (*imageCoder).snapshots},
	{"counts at the end", oldestImage, (*imageCoder).trailer},
}

// WriteImage writes the whole state, in pieces of about 256 KiB. It takes as
// long as the tree is large, so it is meant for clones. Errors are those of w.
func (t *Tree) WriteImage(w io.Writer) error {
	version := levels.At(t.at.Level).Image
	iw := codec.NewImageWriter(w, version)
	im := &imageCoder{coder: coder{&iw.Coder}, t: t, version: version}
	for _, part := range imageParts {
		if im.Next() && version >= part.since {
			part.code(im)
		}
	}
	return iw.Finish()
}

// ReadImage reads what WriteImage wrote, to the end of r. Everything is
// checked: sums, order, and that the parts fit each other. Errors are
// *codec.ImageError. It takes memory only for what it has really read.
func ReadImage(r io.Reader) (*Tree, error) {
	ir := codec.NewImageReader(r, oldestImage, newestImage())
	im := &imageCoder{coder: coder{&ir.Coder}, t: newTree(), version: ir.Version}
	for _, part := range imageParts {
		if im.Next() && im.version >= part.since {
			part.code(im)
		}
		if !ir.OK() {
			return nil, ir.Failure(part.name)
		}
		if im.t.at.Level > levels.Newest() { // what follows need not be as this program knows it
			return nil, im.t.at.Newer("the image")
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
	return imaging.Check(codec.NewImageReader(r, oldestImage, newestImage()))
}

// wrong is fail with details.
func (im *imageCoder) wrong(format string, args ...any) {
	im.Fail(fmt.Sprintf(format, args...))
}
