package transfer

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
)

// What the local file system cannot keep is told with the attribute's name and the
// reason.
func TestLocalXattrErrors(t *testing.T) {
	t.Parallel()
	x := client.Xattr{Name: "user.a", Value: make([]byte, 5000)}
	for err, want := range map[error]fserror.Kind{
		unix.ENOTSUP: fserror.Unsupported, unix.ENOSPC: fserror.NoSpace, unix.E2BIG: fserror.NoSpace, unix.EACCES: fserror.Permission,
	} {
		got := localXattrError("/mnt/f", x, err)
		if text := got.Error(); fserror.KindOf(got) != want || !strings.HasPrefix(text, `get /mnt/f: extended attribute "user.a" of 5000 bytes: `) ||
			want != fserror.Permission && fserror.ReasonOf(got) != fserror.ReasonAttributeLost {
			t.Errorf("%v: %v", err, got)
		}
	}
}
