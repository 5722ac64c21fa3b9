package namecall

import (
	"net"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// nameGrace is for how long namenodes are tried of which no host exists: a name
// server may be about to learn of them.
const nameGrace = 5 * time.Second

// Lookups is what is known of the host names of a configuration: those that do
// not exist, by the last attempt to connect to them. It is not safe for
// concurrent use.
type Lookups struct {
	missing map[string]bool // addresses
	since   time.Time       // from when on no host existed; zero: one did
}

// Failed takes in why a namenode could not be connected to. It returns an error
// when none of the addresses has had a host that exists for nameGrace. A name
// server that does not answer, or says that it cannot tell, ends nothing, but for a
// name that is looked up by a search list: the name alone is asked for last, and who
// denies that has the last word, though a server for the whole name fails.
func (l *Lookups) Failed(address, why string, all []string) error {
	if l.missing == nil {
		l.missing = make(map[string]bool)
	}
	l.missing[address] = noSuchHost(address, why)
	for _, a := range all {
		if !l.missing[a] {
			l.since = time.Time{}
			return nil
		}
	}
	if l.since.IsZero() {
		l.since = time.Now()
	}
	if time.Since(l.since) < nameGrace {
		return nil
	}
	return fserror.New(fserror.Unavailable, "connect", "", "no namenode can be found at %s (no such host); check these names, and "+
		"that this machine's name server knows them", strings.Join(all, ", ")).Because(fserror.ReasonNoNamenode)
}

// noSuchHost reports whether text is of a look-up of the address's host, and says
// that the name does not exist. gRPC hands on the text alone of a net.DNSError;
// the net package has these words for that and for nothing else.
func noSuchHost(address, text string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return strings.Contains(text, "lookup "+host) && strings.Contains(text, ": no such host")
}
