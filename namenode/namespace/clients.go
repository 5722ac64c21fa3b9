package namespace

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// clients are what is remembered of client processes: the results of their calls, what
// they may cache and make by themselves, and the renewals that they missed.
type clients struct {
	results tables.Results
	cachers tables.Cachers
	ages    tables.Ages
	passes  tables.Passes
}

// CallResult returns the answer of a call that was carried out before, and
// whether there is one. Errors are of kind InvalidArgument if the number was
// used for another request or is one that the client said it has the answer
// of, and Retry if too many results are kept to carry out one more call.
// A zero id is never known and never refused.
func (t *clients) CallResult(id CallID) (CallResult, bool, error) { return t.results.Find(id) }

// Remembers reports whether results of a session are kept.
func (t *clients) Remembers(id SessionID) bool { return t.results.Has(id) }

// Caching returns the term of the read-cache leases that a session may have, in
// milliseconds; 0 if it may have none.
func (t *clients) Caching(id SessionID) int64 { return t.cachers.Term(id) }

// CachingSessions returns all sessions that may have read-cache leases, and the
// longest of their terms in milliseconds.
func (t *clients) CachingSessions() (ids []SessionID, term int64) { return t.cachers.All() }

// Reserved reports whether an inode number is set aside for a session, and was not
// used.
func (t *clients) Reserved(id SessionID, inode InodeID) bool { return t.cachers.Reserved(id, inode) }

// Age returns a journalled age in milliseconds, 0 if there is none.
func (t *clients) Age(k AgeKey) int64 { return t.ages.Get(k) }

// Ages calls fn for each journalled age, until it returns false.
func (t *clients) Ages(fn func(Age) bool) { t.ages.Each(fn) }
