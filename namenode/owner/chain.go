package owner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/marker"
)

// linkEvery is for how long a link of a chain stands: less than the life of a URL, for which a block
// stays that a copy has made garbage of, see Blocks.Collect.
const linkEvery = 2 * time.Minute

// chain tells a reign from one that a copy of the process continues, as that of a machine that
// was copied with its memory: it has the term, the nonce and the numbers of keys, and puts no object of
// a reign of its own. So each reign keeps putting objects reign-INCARNATION-TERM-NUMBER, with
// the next number and a token that is new: of two only one gets it, and the other finds that out.
// All but the newest are removed, never that one, so that a copy that continues later finds it.
type chain struct {
	number uint64        // of the last link
	put    time.Duration // when, by the clock's Mono
	next   string        // the token of the next link, which may be in the store already; empty: it is not
}

// linkObject is a link.
type linkObject struct {
	reignObject
	Token string `json:"token"`
}

func linkName(term, number uint64) string { return fmt.Sprintf("%016x-%016x", term, number) }

// linkOf is the term and number in a name of reignNames.
func linkOf(name string) (term, number uint64, ok bool) {
	first, second, _ := strings.Cut(name, "-")
	term, ok = reignTerm(first)
	if !ok {
		return 0, 0, false
	}
	number, ok = blockstore.ParseDigits(second, 16)
	return term, number, ok
}

// link puts the next link if it is time, and returns another's if there is one.
func (c *chain) link(ctx context.Context, o *Owner, names []string) (found *reignObject, err error) {
	var old []string
	newest := uint64(0)
	for _, name := range names {
		if term, n, ok := linkOf(name); ok && term == o.term {
			newest = max(newest, n)
			old = append(old, o.reignName(name))
		}
	}
	now := o.Clock.Mono()
	if newest <= c.number {
		if now-max(c.put, time.Duration(o.since.Load())) < linkEvery {
			return nil, nil
		}
		if c.next == "" {
			c.next = marker.NewToken()
		}
		newest = c.number + 1
		err = putObject(ctx, o.Objects, o.reignName(linkName(o.term, newest)), linkObject{o.reignObject(), c.next})
	} else {
		old, err = nil, fserror.New(fserror.Exists, "", "", "")
	}
	if errors.Is(err, fserror.Exists) {
		var there linkObject
		if err = o.getObject(ctx, o.reignName(linkName(o.term, newest)), &there); err == nil && (c.next == "" || there.Token != c.next) { // else an answer was lost
			return &there.reignObject, nil
		}
	}
	if err != nil {
		return nil, err
	}
	c.number, c.put, c.next = newest, now, ""
	if err := o.Objects.DeleteNamed(ctx, old...); err != nil {
		o.Log.Warn("earlier objects of this reign stay in the block store; their removal is tried again in two minutes", "cause", err)
	}
	return nil, nil
}
