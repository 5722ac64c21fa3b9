package sim

import (
	"context"
	"errors"
	"strconv"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
)

// The pair are two files that clients only change together: both contain the same number,
// which only grows.
const (
	pairLeft, pairRight = "/pair/left", "/pair/right"
	pairNumber          = "user.n"
)

// pair looks at both files, and perhaps counts both up.
func (c *worker) pair(call context.Context) {
	first, second := pairLeft, pairRight
	if c.rand.IntN(2) == 0 {
		first, second = second, first
	}
	n, err := c.number(call, first)
	if errors.Is(err, fserror.NotFound) {
		if !c.makePair(call) {
			return
		}
		n, err = c.number(call, first)
	}
	m := n
	if err == nil {
		m, err = c.number(call, second)
	}
	switch {
	case err != nil && !expected(err):
		c.w.truth.broken("%s: the pair: %v", c.name, err)
	case err == nil && m < n:
		c.w.truth.broken("%s: %s had %d before %s had %d: half of a transaction was seen", c.name, first, n, second, m)
	}
	if err != nil || c.rand.IntN(2) == 0 {
		return
	}
	was, is := strconv.Itoa(m), strconv.Itoa(m+1)
	_, err = client.NewTx(c.fs).IfXattr(first, pairNumber, was).
		SetXattr(pairLeft, pairNumber, is).SetXattr(pairRight, pairNumber, is).Commit(call)
	c.w.log.note(c.name, "counts the pair to %s: %v", is, err)
	switch {
	case err == nil:
		c.w.truth.counted(c.name, m+1)
	case !expected(err) && !errors.Is(err, fserror.CompareFailed):
		c.w.truth.broken("%s: count the pair to %s: %v", c.name, is, err)
	}
}

// makePair makes both files, or none. true: they exist, whoever made them.
func (c *worker) makePair(call context.Context) bool {
	number := client.WithXattrs([]client.Xattr{{Name: pairNumber, Value: []byte("0")}})
	_, err := client.NewTx(c.fs).IfMissing(pairLeft).
		Create(pairLeft, nil, client.WithParents(), number).Create(pairRight, nil, client.WithParents(), number).Commit(call)
	c.w.log.note(c.name, "makes the pair: %v", err)
	there := err == nil || errors.Is(err, fserror.CompareFailed)
	if !there && !expected(err) {
		c.w.truth.broken("%s: make the pair: %v", c.name, err)
	}
	return there
}

func (c *worker) number(call context.Context, path string) (int, error) {
	value, err := c.fs.Xattrs(path).Get(call, pairNumber)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(value))
}

// counted notes that a client has counted the pair up to n, which no other client can have
// done.
func (t *truth) counted(who string, n int) {
	t.mu.Lock()
	other := t.pair[n]
	t.pair[n] = who
	t.mu.Unlock()
	if other != "" {
		t.broken("%s has counted the pair to %d, as %s had", who, n, other)
	}
	t.did("transaction")
}
