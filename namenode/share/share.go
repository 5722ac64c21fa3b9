// Package share divides what all callers use and of which there is only so much:
// connections, watches, leases, waiting calls. Nobody is refused while there is
// plenty. The last quarter is for those who hold little, and the last sixteenth
// for those who look after the namenode, so that whoever takes all that he can
// get takes it from himself. What takes long is done in Turns.
package share

import "sync"

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
	most int64

	mu   sync.Mutex
	used int64
	held map[string]int64 // by holder
}

// New returns a Limit of which nothing is taken.
func New(most int64) *Limit {
	return &Limit{most: most, held: map[string]int64{}}
}

// Taker is who takes something, under each of the names by which a greedy one
// could be told: user and address.
type Taker struct {
	Names   []string
	Reserve bool // may take the last sixteenth as well
}

// User is who has what is kept under a user's name and outlasts a connection.
func User(name string) Taker { return Taker{Names: []string{"user " + name}} }

// Take takes n, or nothing and returns false.
func (l *Limit) Take(n int64, who Taker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used+n > l.room(n, who) {
		return false
	}
	l.hold(n, who)
	return true
}

// Fits reports whether Take would take n.
func (l *Limit) Fits(n int64, who Taker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used+n <= l.room(n, who)
}

// Hold takes n whatever there is: it was found to fit, or is held already.
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

// Used is how much is taken.
func (l *Limit) Used() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}
