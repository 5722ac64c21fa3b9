package namespace

import (
	"fmt"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// EncodeOp appends a record's body to dst. The layout is in
// docs/design/records-and-image.md. The op is not changed.
func EncodeOp(dst []byte, call CallID, op Op) (typ uint8, body []byte) {
	c := coder{codec.Encoder(dst)}
	call.Code(c.Coder)
	op.fields(c)
	return opType(op), c.Written()
}

// DecodeOp is the inverse of EncodeOp. It accepts only what EncodeOp writes:
// an unknown kind, missing or trailing bytes, a length or count that the body
// cannot hold, a number that is not in its shortest form are errors of kind
// Damaged; in a record that raises the level above this program's, of kind Unsupported. It takes no more memory than a small multiple of the body. Data in
// the op are a part of body, not a copy.
func DecodeOp(typ uint8, body []byte) (CallID, Op, error) {
	op := newOp(typ)
	if op == nil {
		return CallID{}, nil, fserror.New(fserror.Damaged, "decode", "", "unknown kind of record %d; it was written by a newer leasefs or is damaged", typ)
	}
	c := coder{codec.Decoder(body)}
	var call CallID
	call.Code(c.Coder)
	op.fields(c)
	if c.OK() && c.Left() > 0 {
		c.Fail("bytes after the end")
	}
	if raise, is := op.(*OpLevel); is && !c.OK() && raise.Known("") != nil {
		return CallID{}, nil, raise.Newer("the namespace") // which may have put more into the record
	}
	if !c.OK() {
		return CallID{}, nil, fserror.New(fserror.Damaged, "decode", "", "record of kind %s: %s at byte %d of %d", opName(op), c.Why(), len(body)-c.Left(), len(body))
	}
	return call, op, nil
}

// coder codes what the layouts of records and of an image have in common.
type coder struct{ *codec.Coder }

func (c coder) inode(v *InodeID) { c.U64((*uint64)(v)) }

func (c coder) strings(v *[]string)         { codec.List(c.Coder, v, 2, c.Text) } // names: never empty
func (c coder) inodes(v *[]InodeID)         { codec.List(c.Coder, v, 1, c.inode) }
func (c coder) keys(v *[]blockstore.Key)    { codec.List(c.Coder, v, 2, c.key) }
func (c coder) key(v *blockstore.Key)       { c.U64(&v.Term); c.U64(&v.Seq) }
func (c coder) block(v *Block)              { v.Code(c.Coder) }
func (c coder) owner(user, group *string)   { c.Text(user); c.Text(group) }
func (c coder) entry(d *InodeID, n *string) { c.inode(d); c.Text(n) }

// op codes a record within another one, in, which cannot be of the same kind; nor can it be
// about the trash within a transaction, so that records are not nested deeply.
func (c coder) op(p *Op, in Op) {
	var typ uint8
	if c.Writes() {
		typ = opType(*p)
	}
	c.U8(&typ)
	if !c.Writes() {
		if *p = newOp(typ); *p == nil || typ == opType(in) || typ == TrashKind {
			c.Fail(fmt.Sprintf("a record of kind %d cannot be in another", typ))
			return
		}
	}
	(*p).fields(c)
}

func (c coder) lease(v *LeaseID) { c.U64((*uint64)(v)) }
