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
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	over := time.NewTimer(eventuallyLimit)
	defer over.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-over.C:
			t.Fatalf("not within %s: %s", eventuallyLimit, what)
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
