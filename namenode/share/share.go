// Package share divides what all callers use and of which there is only so much:
// connections, watches, leases, waiting calls. Nobody is refused while there is
// plenty. The last quarter is for those who hold little, and the last sixteenth
// for those who look after the namenode, so that whoever takes all that he can
// get takes it from himself. What takes long is done in Turns.
package share

import "sync"

// Limit is how much there is of one thing, and who holds how much of it. It is
// safe for concurrent use.
type Limit struct {
	most, little int64

	mu   sync.Mutex
	used int64
	held map[string]int64 // by holder
}

// New returns a Limit of which nothing is taken.
func New(most int64) *Limit {
	return &Limit{most: most, little: max(most/64, 1), held: map[string]int64{}}
}

// Taker is who takes something, under each of the names by which a greedy one
// could be told: user and address.
type Taker struct {
	Names   []string
	Reserve bool // may take the last sixteenth as well
}

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
		l.held[name] += n
	}
}

// room is up to where who may fill it with n more.
func (l *Limit) room(n int64, who Taker) int64 {
	if who.Reserve {
		return l.most
	}
	for _, name := range who.Names {
		if l.held[name]+n > l.little {
			return l.most * 3 / 4
		}
	}
	return max(l.most*15/16, l.most*3/4, 1)
}

// Little reports whether who holds so little that the last quarter is for him.
func (l *Limit) Little(who Taker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range who.Names {
		if l.held[name] >= l.little {
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
		if l.held[name] -= n; l.held[name] <= 0 {
			delete(l.held, name)
		}
	}
}

// Used is how much is taken.
func (l *Limit) Used() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}
