package files

import (
	"fmt"
	"testing"

	"github.com/leasefs/leasefs/gateway/users"
)

// TestRenewOfManyFiles: a client who has more files open than are opened again at once gets the rest by
// later renewals.
func TestRenewOfManyFiles(t *testing.T) {
	first := start(t)
	second := gateway(t, first.nn)
	silence := second.later()
	const files = maxResumed + 20
	for n := range files {
		if _, err := first.Create(t.Context(), first.u, name, fmt.Sprint("/f", n), Create{Mode: 0o644, Create: true}); err != nil {
			t.Fatal(err)
		}
	}
	first.end()
	for _, want := range []int64{maxResumed, files} {
		second.Renew(t.Context(), second.u, name)
		if n := second.InUse(); n != want {
			t.Fatalf("%d files are open, want %d", n, want)
		}
		silence()
	}
}

// TestAskedIsShared: a user with ever new client names takes what is remembered of clients from himself.
// What is over is forgotten.
func TestAskedIsShared(t *testing.T) {
	a := newAsked()
	n := 0
	for a.now(users.Key{User: "eve", Client: fmt.Sprint(n)}, 0, true) {
		if n++; n > maxAsked {
			t.Fatal("there is no bound")
		}
	}
	ann := users.Key{User: "ann", Client: "a"}
	if !a.now(ann, 0, true) {
		t.Errorf("with %d of one user, another's client is not asked for", n)
	}
	if a.now(ann, askEvery-1, true) || a.now(ann, askEvery, false) || !a.now(ann, askEvery, true) {
		t.Error("it is asked for at other times than each minute")
	}
	if !a.now(users.Key{User: "eve", Client: "new"}, askEvery, true) || len(a.when) != 2 || a.room.Used() != 2 {
		t.Errorf("%d are remembered, and %d counted, want 2", len(a.when), a.room.Used())
	}
}
