package s3_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/fserror"
)

// TestBackoff: a store that asks for patience gets it. Each call is tried a
// bounded number of times, with pauses that grow up to a bound, and by chance
// differ, so that many callers do not come back at one moment.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, tries = 40, 6
		const most = 3 * time.Second
		var mu sync.Mutex
		var came []time.Time
		s := offline(t, nowhere, func(c *s3.Config) {
			c.MaxTries, c.MaxBackoff = tries, most
			c.Transport = carrier(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				came = append(came, time.Now())
				return reply(r, http.StatusServiceUnavailable, "SlowDown"), nil
			})
		})
		sum := make([]time.Duration, tries-1)
		different := map[time.Duration]bool{}
		for range calls {
			came = came[:0]
			if err := s.Check(t.Context()); !errors.Is(err, fserror.Unavailable) {
				t.Fatal(err)
			}
			if len(came) != tries {
				t.Fatalf("%d requests, want %d", len(came), tries)
			}
			for i := range sum {
				pause := came[i+1].Sub(came[i])
				if bound := min(time.Second<<i, most); pause < 0 || pause > bound {
					t.Errorf("pause %d is %s, at most %s", i, pause, bound)
				}
				sum[i] += pause
				different[pause] = true
			}
		}
		for i := range sum {
			// On average half of the bound; a tenth of it by no chance.
			if mean, bound := sum[i]/calls, min(time.Second<<i, most); mean < bound/10 {
				t.Errorf("pause %d is %s on average, of at most %s", i, mean, bound)
			}
		}
		if len(different) < calls {
			t.Errorf("%d different pauses", len(different))
		}
		// Many callers at a time: as many requests as tries, and no more.
		came = came[:0]
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				if err := s.Check(t.Context()); !errors.Is(err, fserror.Unavailable) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(came) != calls*tries {
			t.Errorf("%d requests of %d calls, want %d", len(came), calls, calls*tries)
		}
	})
}
