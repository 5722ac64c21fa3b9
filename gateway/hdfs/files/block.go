package files

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
)

// A block's ID is its file's inode and its number in the file; a stamp is the epoch of
// the file's opening, whether the block is odd, and how often a pipeline was set up since then. Of a
// file in a snapshot the ID is that of the live file; only the token says in which snapshot it is.
const (
	indexBits  = 24
	stampShift = 10
	// stampOdd marks a block that began elsewhere than its number says, and those that the same
	// opening began after it: only the gateway that gave them knows where.
	stampOdd = 1 << (stampShift - 1)
	// maxPipelines is how often a pipeline is set up in one opening.
	maxPipelines = stampOdd - 1
)

// maxIndex is the greatest number of a block in its file.
const maxIndex = 1<<indexBits - 1

func blockID(inode uint64, index int64) int64 {
	return int64(inode)<<indexBits | index //nolint:gosec // an inode that is too large is refused
}

// Inode is that of the file that the block is of.
func (b Block) Inode() uint64 {
	return snapshots.Inode(b.snapshot, uint64(b.ID)>>indexBits) //nolint:gosec // a negative one leads to none
}

// Index is its number in the file; the first is 0.
func (b Block) Index() int64 { return b.ID & maxIndex }

func (b Block) isOdd() bool { return b.Stamp&stampOdd != 0 }

// epoch is that of the opening in which the client was given the block.
func (b Block) epoch() int64 { return b.Stamp >> stampShift }

// ranges are the blocks of a file with so many bytes that a range touches, at most
// MaxLocated. A file that has more blocks than there are numbers has larger ones.
func ranges(inode uint64, stamp int64, cut uint64, offset, end, length, size int64) Blocks {
	for !numbered(length, size) {
		size *= 2
	}
	end = min(end, length)
	if offset >= end {
		return Blocks{}
	}
	b := Blocks{inode: inode, stamp: stamp, cut: cut, first: offset / size, length: length, size: size}
	b.n = min((end-1)/size+1-b.first, MaxLocated)
	return b
}

// numbered tells whether there are numbers for all blocks of a file.
func numbered(length, size int64) bool { return (length-1)/size <= maxIndex }

// Len is how many there are.
func (b Blocks) Len() int { return int(b.n) }

// At returns one, the first of which has the number 0.
func (b Blocks) At(n int) Block {
	index := b.first + int64(n)
	at := index * b.size
	snapshot, live := snapshots.Split(b.inode)
	return Block{ID: blockID(live, index), Stamp: b.stamp, Offset: at, Length: min(b.size, b.length-at), snapshot: snapshot, cut: b.cut}
}

// tokenTime is for how long a token is good. HDFS gives ten hours, too. Clocks of gateways
// with the same key can differ by as much before one refuses another's.
const tokenTime = 10 * time.Hour

const (
	tokenVersion = 2 // 1 has no number of a snapshot; gateways of the last release make it
	tokenFixed   = 1 + 1 + 7*8 + 4
)

// Token lets its bearer read a block, for ten hours, or write it in the name of the client
// that has the file open: the two byte strings of a TokenProto, whose kind is TokenKind.
// Whoever has it acts as u.
func (t *Table) Token(u *users.User, b Block, write bool) (identifier, password []byte) {
	name := ""
	id := make([]byte, 0, tokenFixed+len(u.User))
	id = append(id, tokenVersion, 0)
	if f := t.open(b.Inode()); write && f != nil && f.holder.User == u.User {
		id[1], name = 1, f.holder.Client
	}
	for _, n := range []uint64{
		uint64(t.cfg.Now().Add(tokenTime).Unix()), uint64(b.ID), uint64(b.Stamp), uint64(b.Offset), uint64(b.Length), b.cut, b.snapshot, //nolint:gosec // as bits
	} {
		id = binary.BigEndian.AppendUint64(id, n)
	}
	id = binary.BigEndian.AppendUint32(id, uint32(len(u.User))) //nolint:gosec // it is short
	id = append(append(id, u.User...), name...)
	return id, t.sign(id)
}

func (t *Table) sign(identifier []byte) []byte {
	m := hmac.New(sha256.New, t.cfg.Key)
	_, _ = m.Write(identifier)
	return m.Sum(nil)
}

// Check opens a token that came with the ID of the block that it is used for. Permission
// if it is none of this gateway's, is over, is good for longer than any that a right clock
// made, or is of another block.
func (t *Table) Check(identifier, password []byte, id int64, write bool) (Grant, error) {
	const op = "token"
	fixed := tokenFixed
	if len(identifier) > 0 && identifier[0] == 1 {
		fixed -= 8
	}
	if len(identifier) < fixed || identifier[0] != 1 && identifier[0] != tokenVersion || !hmac.Equal(password, t.sign(identifier)) {
		return Grant{}, fserror.New(fserror.Permission, op, "", "the block's token was not made by this gateway; ask for the block's location again")
	}
	num := func(n int) int64 { return int64(binary.BigEndian.Uint64(identifier[2+8*n:])) } //nolint:gosec // as bits
	names := string(identifier[fixed:])
	user := int(min(binary.BigEndian.Uint32(identifier[fixed-4:]), uint32(len(names)))) //nolint:gosec // it is short
	g := Grant{
		User: names[:user], Client: names[user:], Write: identifier[1] == 1, Expires: time.Unix(num(0), 0),
		Block: Block{ID: num(1), Stamp: num(2), Offset: num(3), Length: num(4), cut: uint64(num(5))}, //nolint:gosec // as bits
	}
	if identifier[0] != 1 {
		g.Block.snapshot = uint64(num(6)) //nolint:gosec // as bits
	}
	switch left := g.Expires.Sub(t.cfg.Now()); {
	case left > 2*tokenTime:
		return Grant{}, fserror.New(fserror.Permission, op, "", "the block's token is good until %s, for longer than any is: it was made by a gateway whose clock is, or was, ahead; ask for the block's location again", g.Expires.UTC().Format(time.RFC3339))
	case left < 0:
		return Grant{}, fserror.New(fserror.Permission, op, "", "the block's token was good until %s; ask for the block's location again", g.Expires.UTC().Format(time.RFC3339))
	case g.Block.ID != id:
		return Grant{}, fserror.New(fserror.Permission, op, "", "the token is of block %d, not of %d", g.Block.ID, id)
	case write && !g.Write:
		return Grant{}, fserror.New(fserror.Permission, op, "", "the token of block %d allows to read it, not to write it", id)
	}
	return g, nil
}

// Cut is that of the file when the block was located: see client.Reader.
func (g Grant) Cut() uint64 { return g.Block.cut }
