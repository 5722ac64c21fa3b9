package env

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"
)

// eventuallyLimit is how long Eventually waits, and a page may take.
const eventuallyLimit = 2 * time.Minute

// Eventually waits until ok says so; the test fails if it never does.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), eventuallyLimit) // a cleanup may wait, too
	defer cancel()
	Until(ctx, t, what, ok)
}

// Until is Eventually with a limit of the caller's. It looks every 2 ms at first,
// and less often the longer it has waited and the longer a look takes, such as one
// that runs a command: tests that wait for seconds must leave the processors to
// what they wait for.
func Until(ctx context.Context, t testing.TB, what string, ok func() bool) {
	t.Helper()
	const least, most = 2 * time.Millisecond, 50 * time.Millisecond
	began := time.Now()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		look := time.Now()
		if ok() {
			return
		}
		next.Reset(min(max(time.Since(began)/20, 3*time.Since(look), least), most))
		select {
		case <-next.C:
		case <-ctx.Done():
			t.Fatalf("not within %s: %s (%v)", time.Since(began).Round(time.Millisecond), what, context.Cause(ctx))
		}
	}
}

// Metrics is the namenode's metrics page.
func (n *Namenode) Metrics(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventuallyLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTPAddr()+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}
