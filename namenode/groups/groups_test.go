package groups

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/leasefs/leasefs/internal/clock"
)

// A user's groups are asked for once in a while, and not remembered of all.
func TestCache(t *testing.T) {
	clk := new(clock.Fake)
	c := New(clk)
	asked := 0
	c.look = func(name string) ([]string, error) {
		asked++
		return []string{name + "s"}, nil
	}
	want := func(times int) {
		t.Helper()
		if got := c.Of("u"); !slices.Equal(got, []string{"us"}) || asked != times {
			t.Fatalf("%v after %d questions, want %d", got, asked, times)
		}
	}
	want(1)
	clk.Advance(life - 1)
	want(1)
	clk.Advance(1)
	want(2)
	for i := range maxUsers {
		c.Of(fmt.Sprint(i))
	}
	if len(c.known) > maxUsers {
		t.Fatalf("%d users are remembered", len(c.known))
	}
}

// A lookup that fails takes nobody out of a group, and is soon repeated.
func TestFailedLookup(t *testing.T) {
	clk := new(clock.Fake)
	c := New(clk)
	var failure error
	c.look = func(name string) ([]string, error) { return []string{name + "s"}, failure }
	want := func(user string, groups ...string) {
		t.Helper()
		if got := c.Of(user); !slices.Equal(got, groups) {
			t.Fatalf("%s is in %v, want %v", user, got, groups)
		}
	}
	want("u", "us")
	failure = errors.New("no directory")
	clk.Advance(life)
	want("u", "us")
	want("v")
	failure = nil
	clk.Advance(again - 1)
	want("v")
	clk.Advance(1)
	want("v", "vs")
}
