package quota

import (
	"fmt"
	"math"
	"strconv"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/slots"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Growth is how much a change adds to quotas, as a whole: of each Entry the Use.
type Growth struct {
	// Alone says that nothing is added or taken after what moves, so that it need not be counted
	// to its end once it is too much.
	Alone bool

	of   []Entry
	more bool // it was not
}

// None reports whether it adds and takes nothing.
func (g *Growth) None() bool { return len(g.of) == 0 }

// Add adds u to a quota, sign times.
func (g *Growth) Add(e Entry, u Use, sign int64) {
	for i := range g.of {
		if have := &g.of[i]; have.Dir == e.Dir {
			have.Use = have.Plus(u, sign)
			return
		}
	}
	e.Use = Use{}.Plus(u, sign)
	g.of = append(g.of, e)
}

// unbounded is more than there can be.
var unbounded = Use{math.MaxInt64, math.MaxInt64}

// room is how much may be added to quotas besides. More than that is too much for one of them.
func (g *Growth) room(to []Entry) Use {
	room := unbounded
	for _, e := range to {
		var have Use
		for _, other := range g.of {
			if other.Dir == e.Dir {
				have = other.Use
			}
		}
		if e.Limits.Names != None {
			room.Names = min(room.Names, left(e.Limits.Names, e.Use.Names, have.Names))
		}
		if e.Limits.Bytes != None {
			room.Bytes = min(room.Bytes, left(e.Limits.Bytes, e.Use.Bytes, have.Bytes))
		}
	}
	return room
}

// left is how much may be added to what a change adds or takes already. What adds nothing is never
// too much.
func left(limit, use, have int64) int64 {
	room := max(limit-use, 0)
	if have < 0 && room > math.MaxInt64+have {
		return math.MaxInt64
	}
	return room - have
}

// Grows adds to g what Moves tells of. If the growth is Alone it takes no longer than to count
// what there is room for, and a little more.
func (t *Table[X]) Grows(s *slots.Table[X], id, from, to tables.InodeID, g *Growth) {
	t.moves(s, from, to, func(entered []Entry) Use {
		room := unbounded
		if g.Alone {
			room = g.room(entered)
		}
		u, whole := t.useWithin(s, id, room)
		g.more = g.more || !whole
		return u
	}, g.Add)
}

// Growing is told what a record, planned on the tree as it is, is going to do, and adds to Sum what
// that adds to quotas.
type Growing[X any] struct {
	Quotas *Table[X]
	Slots  *slots.Table[X]
	Dead   func(tables.InodeID) bool // whether an entry gives its name up
	Sum    *Growth
}

// Adds says that names and bytes come into a directory.
func (g Growing[X]) Adds(dir tables.InodeID, names int, bytes int64) {
	for _, e := range g.Quotas.Above(nil, g.Slots, dir) {
		g.Sum.Add(e, Use{Names: int64(names), Bytes: bytes}, 1)
	}
}

// Lengthens says that bytes come to a file.
func (g Growing[X]) Lengthens(file tables.InodeID, bytes int64) {
	g.Adds(g.Slots.Up(file), 0, bytes)
}

// Loses says that something in a directory goes, to make room for what else the record says.
func (g Growing[X]) Loses(id, dir tables.InodeID) { g.Quotas.Grows(g.Slots, id, dir, 0, g.Sum) }

// Clears says that a name is needed: a dead entry that has it goes.
func (g Growing[X]) Clears(dir tables.InodeID, name string) {
	if id := g.Slots.Find(dir, name); id != 0 && g.Dead(id) {
		g.Loses(id, dir)
	}
}

// Joins says that files become a part of another one.
func (g Growing[X]) Joins(file tables.InodeID, sources []tables.InodeID) {
	for _, id := range sources {
		g.Lengthens(file, g.Quotas.UseOf(g.Slots, id).Bytes)
		g.Loses(id, g.Slots.Up(id))
	}
}

// Moves says that something goes from one directory to another; 0 is none. It is the last that a
// record says. If nothing follows (Growth.Alone) and it enters no quota it can only take, and is
// not counted, which could take long.
func (g Growing[X]) Moves(id, from, to tables.InodeID) {
	if !g.Sum.Alone || g.Quotas.Enters(g.Slots, from, to) {
		g.Quotas.Grows(g.Slots, id, from, to, g.Sum)
	}
}

// Fits returns an error of kind NoSpace if a quota grows beyond a limit, whether it was within
// it or not. path says where a directory is.
func (t *Table[X]) Fits(g Growth, path func(tables.InodeID) string) error {
	for _, more := range g.of {
		e, ok := t.Get(more.Dir)
		switch {
		case !ok:
		case over(e.Limits.Names, e.Use.Names, more.Use.Names):
			return exceeded(path(e.Dir), "names", fserror.ReasonQuotaNames, e.Limits.Names, e.Use.Names, more.Use.Names, g.more)
		case over(e.Limits.Bytes, e.Use.Bytes, more.Use.Bytes):
			return exceeded(path(e.Dir), "bytes", fserror.ReasonQuotaBytes, e.Limits.Bytes, e.Use.Bytes, more.Use.Bytes, g.more)
		}
	}
	return nil
}

func over(limit, use, more int64) bool { return limit != None && more > 0 && more > limit-use }

func exceeded(path, what, reason string, limit, use, more int64, least bool) error {
	adds := digits(more)
	if least {
		adds += " or more"
	}
	return fserror.New(fserror.NoSpace, "", "", "%s has a quota of %s %s and has %s; this would add %s", path, digits(limit), what, digits(use), adds).Because(reason)
}

// digits is a number that is not below 0, its digits in groups of three.
func digits(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s,%03d", digits(n/1000), n%1000)
}
