package tables

// Clients are what is remembered of client processes: the results of their calls, what
// they may cache and make by themselves, and the renewals that they missed.
type Clients struct {
	ResultTable Results
	CacherTable Cachers
	AgeTable    Ages
	PassTable   Passes
}

// CallResult returns the answer of a call that was carried out before, and
// whether there is one. Errors are of kind InvalidArgument if the number was
// used for another request or is one that the client said it has the answer
// of, and Retry if too many results are kept to carry out one more call.
// A zero id is never known and never refused.
func (t *Clients) CallResult(id CallID) (CallResult, bool, error) { return t.ResultTable.Find(id) }

// Remembers reports whether results of a session are kept.
func (t *Clients) Remembers(id SessionID) bool { return t.ResultTable.Has(id) }

// Caching returns the term of the read-cache leases that a session may have, in
// milliseconds; 0 if it may have none.
func (t *Clients) Caching(id SessionID) int64 { return t.CacherTable.Term(id) }

// CachingSessions returns all sessions that may have read-cache leases, and the
// longest of their terms in milliseconds.
func (t *Clients) CachingSessions() (ids []SessionID, term int64) { return t.CacherTable.All() }

// Reserved reports whether an inode number is set aside for a session, and was not
// used.
func (t *Clients) Reserved(id SessionID, inode InodeID) bool {
	return t.CacherTable.Reserved(id, inode)
}

// Spent reports whether most numbers of the last range that was set aside for a session are used.
func (t *Clients) Spent(id SessionID) bool { return t.CacherTable.Spent(id) }

// Age returns a journalled age in milliseconds, 0 if there is none.
func (t *Clients) Age(k AgeKey) int64 { return t.AgeTable.Get(k) }

// Ages calls fn for each journalled age, until it returns false.
func (t *Clients) Ages(fn func(Age) bool) { t.AgeTable.Each(fn) }
