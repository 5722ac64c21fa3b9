package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
)

// oldToken is a token to read a block as a gateway of the last release made it: version 1, which knows
// of no snapshots.
func oldToken(t *Table, user string, b Block) (identifier, password []byte) {
	id := []byte{1, 0}
	for _, n := range []uint64{uint64(t.cfg.Now().Add(tokenTime).Unix()), uint64(b.ID), uint64(b.Stamp), uint64(b.Offset), uint64(b.Length), b.cut} {
		id = binary.BigEndian.AppendUint64(id, n)
	}
	id = binary.BigEndian.AppendUint32(id, uint32(len(user)))
	id = append(id, user...)
	return id, t.sign(id)
}

// TestTokensOfVersions: a file has blocks of the same IDs as it is and in each snapshot. A token of
// version 1 is good for the file as it is, one of this version for where it was made, and no other can
// be made of either.
func TestTokensOfVersions(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	table := New(Config{Key: bytes.Repeat([]byte{7}, 32), Now: func() time.Time { return now }})
	const live, snapshot, length, size = 4711, 12, 5 << 20, 2 << 20
	u := &users.User{Key: users.Key{User: "ann"}}
	is := ranges(live, 9, 3, 0, length, length, size)
	was := ranges(snapshots.Inode(snapshot, live), 9, 3, 0, length, length, size)
	if is.Len() != 3 || was.Len() != 3 {
		t.Fatal(is.Len(), was.Len())
	}
	for n := range is.Len() {
		now, then := is.At(n), was.At(n)
		if now.ID != then.ID || now.Inode() != live || then.Inode() != snapshots.Inode(snapshot, live) {
			t.Fatalf("block %d: %+v, %+v", n, now, then)
		}
		oldID, oldPassword := oldToken(table, "ann", now)
		nowID, nowPassword := table.Token(u, now, false)
		thenID, thenPassword := table.Token(u, then, false)
		for _, c := range []struct {
			what         string
			id, password []byte
			want         Block
		}{{"version 1", oldID, oldPassword, now}, {"as it is", nowID, nowPassword, now}, {"in a snapshot", thenID, thenPassword, then}} {
			g, err := table.Check(c.id, c.password, c.want.ID, false)
			if err != nil || g.Block != c.want || g.User != "ann" || g.Client != "" || g.Write {
				t.Errorf("%s: %+v, %v, want %+v", c.what, g, err, c.want)
			}
			if _, err := table.Check(c.id, c.password, c.want.ID, true); !errors.Is(err, fserror.Permission) {
				t.Errorf("%s: it allows to write: %v", c.what, err)
			}
			if _, err := table.Check(c.id, c.password, c.want.ID+1, false); !errors.Is(err, fserror.Permission) {
				t.Errorf("%s: it is good for another block: %v", c.what, err)
			}
			for _, other := range [][]byte{oldPassword, nowPassword, thenPassword} {
				if _, err := table.Check(c.id, other, c.want.ID, false); (err == nil) != bytes.Equal(other, c.password) {
					t.Errorf("%s, with the password of another: %v", c.what, err)
				}
			}
			for _, version := range []byte{0, 1, 2, 3} { // who says that it is of another
				forged := slices.Clone(c.id)
				if forged[0] = version; version == c.id[0] {
					continue
				}
				if _, err := table.Check(forged, c.password, c.want.ID, false); !errors.Is(err, fserror.Permission) {
					t.Errorf("%s, said to be of version %d: %v", c.what, version, err)
				}
			}
			for cut := range len(c.id) - len("ann") {
				if _, err := table.Check(c.id[:cut], table.sign(c.id[:cut]), c.want.ID, false); cut < tokenFixed-8 && !errors.Is(err, fserror.Permission) {
					t.Errorf("%s, %d bytes: %v", c.what, cut, err)
				}
			}
		}
	}
}
