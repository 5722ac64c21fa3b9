package share

import (
	"fmt"
	"testing"
)

func user(name string) Taker { return Taker{Names: []string{"user " + name}} }

// takeAll takes one after another until it is refused.
func takeAll(l *Limit, who Taker) (n int) {
	for l.Take(1, who) {
		n++
	}
	return n
}

func TestLastQuarter(t *testing.T) {
	l := New(1024)
	if n := takeAll(l, user("greedy")); n != 768 {
		t.Errorf("one alone took %d, want three quarters", n)
	}
	modest := 0
	for i := range 100 {
		modest += takeAll(l, user(fmt.Sprint(i)))
	}
	if modest != 192 {
		t.Errorf("those who hold little took %d more, want all but the last sixteenth", modest)
	}
	if n := takeAll(l, Taker{Names: []string{"user root"}, Reserve: true}); n != 64 {
		t.Errorf("the last sixteenth: %d", n)
	}
	l.Give(64, Taker{Names: []string{"user root"}, Reserve: true})
	l.Give(100, user("greedy"))
	if l.Take(1, user("greedy")) {
		t.Error("the greedy one took of the last quarter again")
	}
	if !l.Take(1, user("another")) || l.Used() != 861 {
		t.Errorf("another did not get what was given back; used %d", l.Used())
	}
}

// Under a new name from the same address, the greedy one is still told.
func TestNames(t *testing.T) {
	l := New(64)
	for i := 0; ; i++ {
		if !l.Take(1, Taker{Names: []string{fmt.Sprint("user ", i), "address 10.0.0.9"}}) {
			break
		}
	}
	if l.Used() != 48 {
		t.Errorf("%d taken under changing names, want three quarters", l.Used())
	}
	if !l.Take(1, Taker{Names: []string{"user a", "address 10.0.0.1"}}) {
		t.Error("another address is refused")
	}
}

// Nothing is remembered of those who hold nothing.
func TestForgets(t *testing.T) {
	l := New(10)
	for i := range 1000 {
		who := user(fmt.Sprint(i))
		if !l.Take(1, who) {
			t.Fatal(i)
		}
		l.Give(1, who)
	}
	if len(l.held) != 0 || l.Used() != 0 {
		t.Errorf("%d holders, %d used", len(l.held), l.Used())
	}
}

// Of what there is only one, one can be had.
func TestOne(t *testing.T) {
	l := New(1)
	if !l.Take(1, user("a")) || l.Take(1, user("b")) {
		t.Error("not exactly one")
	}
}

// A holder who gave something back twice, and takes it again, holds what he held, and
// who holds nothing is not remembered.
func TestGivenBackTwice(t *testing.T) {
	l, who := New(1024), user("a")
	l.Hold(1, who)
	l.Give(1, who)
	l.Give(1, who)
	l.Hold(1, who)
	l.Hold(1, who)
	l.Give(1, who)
	l.Hold(0, user("b"))
	if len(l.held) != 0 || l.used != 0 {
		t.Errorf("%d used, by %v", l.used, l.held)
	}
}

// Room is full once somebody who holds nothing is refused, and not before.
func TestRoomOfThoseWhoHoldLittle(t *testing.T) {
	for _, most := range []int64{1, 2, 15, 16, 100, 1024} {
		l, n := New(most), 0
		for ; l.Take(1, user(fmt.Sprint(n))); n++ {
			if l.Used() > l.Room() {
				t.Fatalf("of %d: %d taken, room for %d", most, l.Used(), l.Room())
			}
		}
		if l.Used() < l.Room() {
			t.Errorf("of %d: refused at %d, room for %d", most, l.Used(), l.Room())
		}
	}
}
