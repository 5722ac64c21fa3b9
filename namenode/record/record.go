// Package record is what a journal record holds: a change of the namespace, and of changes
// that take something from others also who asked for it. The tree does not depend on that;
// watches and the history of leases tell it.
package record

import (
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// Signed is the kind of a record that says who asked for the change in it: a lease owner,
// the kind of the change, and the body of a record of that kind.
const Signed = 41

// Signer is who is named in the record of a change that a caller asks for: c, if the change
// takes a name or a lease away, else nobody.
func Signer(c *namespace.Call, op namespace.Op) *namespace.Owner {
	for _, part := range namespace.Parts(op) {
		switch part := part.(type) {
		case *namespace.OpDelete, *namespace.OpRecover, *namespace.OpEnd:
			return c.Asker()
		case *namespace.OpRename:
			if part.Replace != 0 {
				return c.Asker()
			}
		}
	}
	return nil
}

// Encode returns the kind and the body of a record; by is nil if it names nobody.
func Encode(by *namespace.Owner, call namespace.CallID, op namespace.Op) (kind uint8, body []byte) {
	if by == nil {
		return namespace.EncodeOp(nil, call, op)
	}
	c := codec.Encoder(nil)
	by.Code(c)
	c.Append(0)
	head := c.Written()
	kind, body = namespace.EncodeOp(head, call, op)
	body[len(head)-1] = kind
	return Signed, body
}

// Decode is the inverse of Encode. Its errors are those of namespace.DecodeOp.
func Decode(kind uint8, body []byte) (by *namespace.Owner, call namespace.CallID, op namespace.Op, err error) {
	if kind != Signed {
		call, op, err = namespace.DecodeOp(kind, body)
		return nil, call, op, err
	}
	c := codec.Decoder(body)
	by = new(namespace.Owner)
	by.Code(c)
	c.U8(&kind)
	if !c.OK() {
		return nil, call, nil, fserror.New(fserror.Damaged, "decode", "", "record that says who asked for it: %s at byte %d of %d", c.Why(), len(body)-c.Left(), len(body))
	}
	call, op, err = namespace.DecodeOp(kind, body[len(body)-c.Left():])
	return by, call, op, err
}
