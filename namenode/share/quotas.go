package share

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/rulefile"
)

// What callers share of which one can have a limit of his own.
const (
	Connections = "connections" // of an address; a connection has no user
	Sessions    = "sessions"    // streams of sessions
	KeepAlives  = "keepalives"  // streams that keep granted leases alive
	Watches     = "watches"
	Leases      = "leases"  // granted ones, of a user: they outlast addresses
	Files       = "files"   // open for write, of a session's user: they outlast addresses, too
	Waiting     = "waiting" // calls that wait for others, or because of Calls
	Calls       = "calls"   // a second
)

// Quota is how much the holder of a name may have; 0: no limit of his own.
type Quota func(name string) int64

// Quotas are what a file says of who may have how much. A line is
//
//	user NAME WHAT=N …
//	address ADDRESS WHAT=N …
//
// where NAME or ADDRESS can be *, for all who have no line with that WHAT, and N can be
// none. Empty lines and those that begin with # mean nothing. Nil Quotas limit nobody.
type Quotas struct {
	most map[string]map[string]int64 // by what, and by holder as in Taker.Names; users' and addresses' defaults are anyUser and anyAddress
}

const (
	userPrefix = "user "
	anyUser    = "user *"
	anyAddress = "*"
)

// ParseQuotas reads the content of a file. name turns an address into the name under which it
// takes its share. An error says which line is wrong, and why.
func ParseQuotas(content []byte, name func(address string) (string, error)) (*Quotas, error) {
	q := &Quotas{most: map[string]map[string]int64{}}
	err := rulefile.Each(content, func(n int, words []string) error {
		if err := q.line(words, name); err != nil {
			return fmt.Errorf("line %d: %w; a line is: user NAME, or address ADDRESS (* for all others), and WHAT=N with WHAT one of connections, sessions, keepalives, watches, leases, files, waiting, calls", n, err)
		}
		return nil
	})
	return q, err
}

func (q *Quotas) line(words []string, name func(string) (string, error)) error {
	if len(words) < 3 {
		return fmt.Errorf("%q says for nobody or nothing how much", strings.Join(words, " "))
	}
	who := words[1]
	switch words[0] {
	case "user":
		who = userPrefix + who
	case "address":
		if who != anyAddress {
			var err error
			if who, err = name(who); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("%q is neither user nor address", words[0])
	}
	for _, w := range words[2:] {
		what, number, _ := strings.Cut(w, "=")
		n, err := strconv.ParseInt(number, 10, 64)
		switch {
		case number == "none":
			n = 0
		case err != nil || n < 1 || n > 1<<40:
			return fmt.Errorf("%q gives no number from 1 on, nor none", w)
		}
		switch what {
		case Connections:
			if words[0] == "user" {
				return fmt.Errorf("%q: a connection has an address, and no user", w)
			}
		case Leases, Files:
			if words[0] == "address" {
				return fmt.Errorf("%q: a granted lease, as an open file, has a user, and no address", w)
			}
		case Sessions, KeepAlives, Watches, Waiting, Calls:
		default:
			return fmt.Errorf("%q is nothing that can be limited", what)
		}
		if q.most[what] == nil {
			q.most[what] = map[string]int64{}
		}
		if _, twice := q.most[what][who]; twice {
			return fmt.Errorf("%s of %s are said by an earlier line", what, words[1])
		}
		q.most[what][who] = n
	}
	return nil
}

// Of is how much of something the holder of a name may have; 0: no limit of his own.
func (q *Quotas) Of(what, name string) int64 {
	if q == nil {
		return 0
	}
	of := q.most[what]
	if n, own := of[name]; own {
		return n
	}
	if strings.HasPrefix(name, userPrefix) {
		return of[anyUser]
	}
	return of[anyAddress]
}

// Limits reports whether anybody has a limit of something.
func (q *Quotas) Limits(what string) bool { return q != nil && len(q.most[what]) > 0 }
