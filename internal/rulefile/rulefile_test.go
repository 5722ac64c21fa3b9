package rulefile

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Rules come with the numbers of their lines, until one is refused; a line that is too long is
// an error, too.
func TestEach(t *testing.T) {
	var got []string
	add := func(n int, words []string) error {
		got = append(got, fmt.Sprint(n, words))
		return nil
	}
	if err := Each([]byte("# what follows\na  b\n\n \t\n  # c\nd #e\r\nf"), add); err != nil {
		t.Fatal(err)
	}
	if all, want := strings.Join(got, "; "), "2 [a b]; 6 [d #e]; 7 [f]"; all != want {
		t.Errorf("got %s, want %s", all, want)
	}
	bad, calls := errors.New("bad"), 0
	if err := Each([]byte("a\nb\nc"), func(n int, _ []string) error {
		if calls++; n == 2 {
			return bad
		}
		return nil
	}); !errors.Is(err, bad) || calls != 2 {
		t.Errorf("%v after %d calls", err, calls)
	}
	if err := Each([]byte(strings.Repeat("a", 1<<20)), add); !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("a long line: %v", err)
	}
}
