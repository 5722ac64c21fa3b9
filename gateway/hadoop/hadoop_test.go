package hadoop

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/fserror"
)

// TestReportsHaveABound: a report that is made whole is refused where it has too many changes, or where
// their paths are too long in all.
func TestReportsHaveABound(t *testing.T) {
	for what, c := range map[string]struct{ length, most int }{
		"changes": {10, maxReport}, "bytes": {16 << 10, maxReportBytes / (16 << 10)},
	} {
		var r report
		change := &snapshots.Change{Path: strings.Repeat("x", c.length/2), NewPath: strings.Repeat("x", c.length/2)}
		for n := range c.most {
			if err := r.add(SnapshotPage{Deleted: []*snapshots.Change{change}}); err != nil {
				t.Fatalf("%s: refused at %d: %v", what, n+1, err)
			}
		}
		if err := r.add(SnapshotPage{Created: []*snapshots.Change{change}}); ClassOf(err) != SnapshotWrong {
			t.Errorf("%s: %d are too many: %v", what, c.most+1, err)
		}
	}
}

func TestAttr(t *testing.T) {
	for a, text := range map[Attr]string{
		{2, 1 << 20}: "replication=2 blocksize=1048576", {2, DefaultAttr.BlockSize}: "replication=2", {3, 1}: "blocksize=1", DefaultAttr: "",
	} {
		if got := string(a.encode()); got != text || decodeAttr([]byte(got)).Or(DefaultAttr) != a {
			t.Errorf("%v: %q", a, got)
		}
	}
	for _, text := range []string{"", "nonsense", "replication=-1 blocksize=0", "replication=9999999 blocksize=x", "blocksize=274877906945", "replication=\x00"} {
		if got := decodeAttr([]byte(text)).Or(DefaultAttr); got != DefaultAttr {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestEveryKindHasAClass: the name of each kind of error is one that a client knows.
func TestEveryKindHasAClass(t *testing.T) {
	for k := range fserror.Kinds {
		class := ClassOf(fserror.New(k, "op", "/p", "text"))
		if !strings.HasPrefix(class, "java.") && !strings.HasPrefix(class, "org.apache.") {
			t.Errorf("%s: %q", k.Error(), class)
		}
	}
	held := &fserror.Error{Kind: fserror.Held, Holder: &fserror.Holder{User: "ann"}}
	if got := ClassOf(held); got != RecoveryInProgress {
		t.Errorf("held by one past the limit: %s", got)
	}
	held.TakeableIn = time.Second
	if got := ClassOf(held); got != AlreadyBeingCreated {
		t.Errorf("held: %s", got)
	}
	if got := ClassOf(io.ErrUnexpectedEOF); got != IOException {
		t.Errorf("any other: %s", got)
	}
	if got := ClassOf(context.Canceled); got != Retriable {
		t.Errorf("canceled: %s", got)
	}
}
