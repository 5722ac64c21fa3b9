package leasefsv1_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// TestSessionIsOf: an id is its user's alone. The bytes of one are written down here, since
// clients in other languages make them.
func TestSessionIsOf(t *testing.T) {
	id := pb.SessionFor("änn", [10]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	if got := hex.EncodeToString(id); got != "0102030405060708090ab6150fa251ff" {
		t.Errorf("it is %s", got)
	}
	if a, b := pb.NewSession("ann"), pb.NewSession("ann"); bytes.Equal(a, b) || !pb.SessionIsOf(a, "ann") {
		t.Errorf("two ids are %x and %x", a, b)
	}
	other := bytes.Clone(id)
	other[0]++
	for what, is := range map[string]bool{
		"its user":       pb.SessionIsOf(id, "änn"),
		"another user":   !pb.SessionIsOf(id, "ann"),
		"nobody":         !pb.SessionIsOf(id, ""),
		"another id":     !pb.SessionIsOf(other, "änn"),
		"less":           !pb.SessionIsOf(id[:15], "änn"),
		"more":           !pb.SessionIsOf(append(id, 0), "änn"),
		"no id":          !pb.SessionIsOf(nil, ""),
		"only its front": !pb.SessionIsOf(id[:10], "änn"),
	} {
		if !is {
			t.Errorf("%s: the wrong answer", what)
		}
	}
}
