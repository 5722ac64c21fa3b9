package delegation

import (
	"fmt"
	"sync"
	"testing"
)

// TestNames: what was added may be there, also when many add at once; of what was not,
// one in fifty at most seems to be with 10,000 names.
func TestNames(t *testing.T) {
	const names, adders = 10_000, 4
	n := NewNames()
	if n.Has("0") {
		t.Error("a new filter has a name")
	}
	var wg sync.WaitGroup
	for a := range adders {
		wg.Go(func() {
			for i := a; i < names; i += adders {
				n.Add(fmt.Sprint(i))
			}
		})
	}
	wg.Wait()
	seem := 0
	for i := range names {
		if !n.Has(fmt.Sprint(i)) {
			t.Fatalf("%d was added and is absent", i)
		}
		if n.Has(fmt.Sprint("other", i)) {
			seem++
		}
	}
	if seem > names/50 {
		t.Errorf("%d of %d other names seem to be there", seem, names)
	}
}
