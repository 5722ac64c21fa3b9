// Package share divides what all callers use and of which there is only so much:
// connections, watches, leases, open files, waiting calls. Nobody is refused while there is
// plenty. The last quarter is for those who hold little, and the last sixteenth
// for those who look after the namenode, so that whoever takes all that he can
// get takes it from himself. What takes long is done in Turns.
package share

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Room is up to where somebody who holds so much of something may fill it with n
// more, most being how much there is. It is for what is counted elsewhere; reserve
// is Taker.Reserve.
func Room(most, held, n int64, reserve bool) int64 {
	switch {
	case reserve:
		return most
	case held+n > little(most):
		return most * 3 / 4
	}
	return max(most*15/16, most*3/4, 1)
}

// little is how much one may hold for whom the last quarter is.
func little(most int64) int64 { return max(most/64, 1) }

// Limit is how much there is of one thing, and who holds how much of it. It is
// safe for concurrent use.
type Limit struct {
	most  int64
	what  string // see Quotas
	quota Quota  // nil: nobody has a limit of his own

	mu      sync.Mutex
	used    int64
	held    map[string]int64  // by holder
	refused map[string]uint64 // how often, by holder, as long as he holds something
	refuses uint64            // how often in all
	slow    []slow            // the latest last
}

// slow is who was too slow with what he held, and how often.
type slow struct {
	name  string
	times uint64
}

// New returns a Limit of which nothing is taken.
func New(most int64) *Limit {
	return &Limit{most: most, held: map[string]int64{}, refused: map[string]uint64{}}
}

// Of returns a Limit of which nothing is taken, and of which each holder may have no more
// than quota says.
func Of(most int64, what string, quota Quota) *Limit {
	l := New(most)
	l.what, l.quota = what, quota
	return l
}

// Taker is who takes something, under each of the names by which a greedy one
// could be told: user and address.
type Taker struct {
	Names   []string
	Reserve bool // may take the last sixteenth as well
}

// User is who has what is kept under a user's name and outlasts a connection.
func User(name string) Taker { return Taker{Names: []string{userPrefix + name}} }

// Take takes n, or nothing and returns false.
func (l *Limit) Take(n int64, who Taker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over(n, who) != "" || l.used+n > l.room(n, who) {
		l.refuses++
		for _, name := range who.Names {
			if l.held[name] > 0 { // else he is not greedy, and need not be remembered
				l.refused[name]++
			}
		}
		return false
	}
	l.hold(n, who)
	return true
}

// Most is n, or less if who may never have so many.
func (l *Limit) Most(n int64, who Taker) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quota == nil || who.Reserve {
		return n
	}
	for _, name := range who.Names {
		if most := l.quota(name); most > 0 {
			n = min(n, most)
		}
	}
	return n
}

// Over reports whether who would have more than he may have himself with n more.
func (l *Limit) Over(n int64, who Taker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over(n, who) != ""
}

// over is the name under which who would have more than he may; empty: he would not.
func (l *Limit) over(n int64, who Taker) string {
	if l.quota == nil || who.Reserve {
		return ""
	}
	for _, name := range who.Names {
		if most := l.quota(name); most > 0 && l.held[name]+n > most {
			return name
		}
	}
	return ""
}

// Why says why Take did not take n.
func (l *Limit) Why(n int64, who Taker) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name := l.over(n, who); name != "" {
		return fmt.Sprintf("%s has %d %s, and may have %d; end some, or ask the operator for more", holder(name), l.held[name], strings.Replace(l.what, Files, "files open for write", 1), l.quota(name))
	}
	return fmt.Sprintf("overloaded: there are too many %s, and the room that is left is for users and addresses that have few", l.what)
}

// holder is how a name of a Taker is told.
func holder(name string) string {
	if strings.HasPrefix(name, userPrefix) {
		return name
	}
	return "address " + name
}

// Refusals is how often something was refused.
func (l *Limit) Refusals() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refuses
}

// Holding is what somebody holds.
type Holding struct {
	What, Who        string
	Held, Most       int64 // Most is his quota; 0: he has none
	Refused, Delayed uint64
}

// mostGreedy is how many of the greedy are told, and how many of the slow are remembered.
const mostGreedy = 10

// Slow notes that who was too slow with what he held, as Holding.Delayed tells.
func (l *Limit) Slow(who Taker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range who.Names {
		times := l.slowness(name) + 1
		l.slow = append(slices.DeleteFunc(l.slow, func(s slow) bool { return s.name == name }), slow{name, times})
	}
	l.slow = slices.Delete(l.slow, 0, max(0, len(l.slow)-mostGreedy))
}

// slowness is how often a holder was too slow, as far as that is remembered.
func (l *Limit) slowness(name string) uint64 {
	for _, s := range l.slow {
		if s.name == name {
			return s.times
		}
	}
	return 0
}

// Greedy are those who hold an eighth of all, or four fifths of their own quota, or who were
// refused more, or too slow, the greediest first.
func (l *Limit) Greedy() (all []Holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, n := range l.held {
		if h := l.holding(name); h.Refused+h.Delayed > 0 || n > 1 && n >= l.most/8 || h.Most > 0 && n >= h.Most-h.Most/5 {
			all = append(all, h)
		}
	}
	for _, s := range l.slow {
		if l.held[s.name] == 0 {
			all = append(all, l.holding(s.name))
		}
	}
	return first(all)
}

// holding is what the holder of a name has.
func (l *Limit) holding(name string) Holding {
	h := Holding{What: l.what, Who: holder(name), Held: l.held[name], Refused: l.refused[name], Delayed: l.slowness(name)}
	if l.quota != nil {
		h.Most = l.quota(name)
	}
	return h
}

// Held is what a user holds of several Limits, and what he may. Left out are those of which nobody
// can have a quota, and those of which he holds nothing and has none.
func Held(user string, limits []*Limit) (all []Holding) {
	for _, l := range limits {
		if l.quota == nil {
			continue
		}
		l.mu.Lock()
		h := l.holding(userPrefix + user)
		l.mu.Unlock()
		if h.Held > 0 || h.Most > 0 {
			all = append(all, h)
		}
	}
	return all
}

// first are the greediest.
func first(all []Holding) []Holding {
	slices.SortFunc(all, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(b.Refused+b.Delayed, a.Refused+a.Delayed), cmp.Compare(b.Held, a.Held), strings.Compare(a.Who, b.Who))
	})
	return all[:min(len(all), mostGreedy)]
}

// Fits reports whether Take would take n.
func (l *Limit) Fits(n int64, who Taker) bool { return l.FitsOnce(0, n, who) }

// FitsOnce reports whether Take would take n once others have given back as much as given says.
func (l *Limit) FitsOnce(given, n int64, who Taker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over(n, who) == "" && l.used-given+n <= l.room(n, who)
}

// Hold takes n whatever there is: it was found to fit, or is held already. Less than 0 is given back.
func (l *Limit) Hold(n int64, who Taker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold(n, who)
}

func (l *Limit) hold(n int64, who Taker) {
	l.used += n
	for _, name := range who.Names {
		l.add(name, n)
	}
}

// add counts for a holder. What was given back twice and is taken again counts less
// than nothing meanwhile.
func (l *Limit) add(name string, n int64) {
	if l.held[name] += n; l.held[name] == 0 {
		delete(l.held, name)
		delete(l.refused, name)
	}
}

// room is up to where who may fill it with n more.
func (l *Limit) room(n int64, who Taker) int64 {
	held := int64(0)
	for _, name := range who.Names {
		held = max(held, l.held[name])
	}
	return Room(l.most, held, n, who.Reserve)
}

// Little reports whether who holds so little that the last quarter is for him.
func (l *Limit) Little(who Taker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range who.Names {
		if l.held[name] >= little(l.most) {
			return false
		}
	}
	return true
}

// Give gives back what was taken.
func (l *Limit) Give(n int64, who Taker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= n
	for _, name := range who.Names {
		l.add(name, -n)
	}
}

// Room is up to where those who hold little may fill it: then all but the operators are refused.
func (l *Limit) Room() int64 { return Room(l.most, 0, 1, false) }

// What says of what; empty: it has no name.
func (l *Limit) What() string { return l.what }

// Used is how much is taken.
func (l *Limit) Used() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}
