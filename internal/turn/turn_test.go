package turn

import (
	"context"
	"errors"
	"testing"
)

// The turn has one holder at a time; a waiter gets it next, or gives up with its context.
func TestTurn(t *testing.T) {
	turn, gaveUp := New(), errors.New("gave up")
	unlock, err := turn.Lock(t.Context())
	if err != nil || !turn.Taken() {
		t.Fatal(err)
	}
	if turn.TryLock() != nil {
		t.Error("two have it")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gaveUp)
	if _, err := turn.Lock(ctx); !errors.Is(err, gaveUp) {
		t.Errorf("who gave up: %v", err)
	}
	next := make(chan struct{})
	go func() {
		defer close(next)
		if u, err := turn.Lock(t.Context()); err == nil {
			u()
		}
	}()
	unlock()
	<-next
	if unlock = turn.TryLock(); unlock == nil {
		t.Fatal("nobody has it")
	}
	unlock()
}

// Who does not want to wait any more gets the turn if it is free, else an error.
func TestLockUnless(t *testing.T) {
	turn, not := New(), make(chan struct{})
	unlock, err := turn.LockUnless(t.Context(), not)
	if err != nil {
		t.Fatal(err)
	}
	close(not)
	if _, err := turn.LockUnless(t.Context(), not); !errors.Is(err, ErrNot) {
		t.Errorf("who does not wait: %v", err)
	}
	gaveUp := errors.New("gave up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gaveUp)
	if _, err := turn.LockUnless(ctx, nil); !errors.Is(err, gaveUp) {
		t.Errorf("who gave up: %v", err)
	}
	unlock()
}
