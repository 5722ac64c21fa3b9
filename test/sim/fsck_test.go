package sim

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasefs/leasefs/client"
)

// A check calls no block missing or damaged of which the store tells nothing, and
// tells of each that it could not look at.
func TestFsckOfASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calmWorld(t, Config{Seed: 2, S3: true}, 1, func(*worker) {})
		fs := w.clients[0].fs
		if err := fs.WriteFile(t.Context(), "/f", []byte(strings.Repeat("0", 2*blockSize))); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name      string
			begin     func() (heal func())
			unchecked uint64
		}{
			{"none", func() func() { return func() {} }, 0},
			{"trouble", func() func() { w.store.SetTrouble(1); return func() { w.store.SetTrouble(0) } }, 2},
			{"cut", func() func() { return w.cut(w.theActive().name, storeName, 0) }, 2},
			{"healed", func() func() { return func() {} }, 0},
		} {
			heal := c.begin()
			told := uint64(0)
			sum, err := fs.Admin().Fsck(t.Context(), "", true, func(p client.FsckProblem) error {
				if told++; !p.Unchecked {
					t.Errorf("%s: %s: %s", c.name, p.Path, p.Problem)
				}
				return nil
			})
			heal()
			if err != nil || sum.Problems != 0 || sum.Unchecked != c.unchecked || told != c.unchecked {
				t.Errorf("%s: %+v, told of %d, %v; want %d unchecked", c.name, sum, told, err, c.unchecked)
			}
		}
		w.end()
	})
}
