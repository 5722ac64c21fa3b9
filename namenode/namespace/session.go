package namespace

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Limits of the results kept so that a repeated call gets the answer of the
// first (RIFL, SOSP 2015).
const (
	// SessionTTL is how long after its last record the results of a session are
	// kept, in milliseconds of Tree.Reigned. No client repeats a call for longer.
	SessionTTL = 10 * 60 * 1000
	// MaxUnacked is how many results a session may leave unacknowledged.
	MaxUnacked = 16384
	// MaxSessions is how many sessions may have results.
	MaxSessions = 1 << 20

	// idleShift makes buckets of 16 seconds: a session moves within the order
	// of age once in so long, not with each record.
	idleShift = 14
	// expireSlice is how many sessions one record may let expire.
	expireSlice = 8
	// retryMS is what a refused caller is told to wait.
	retryMS = 1000
)

// CallResult is the answer of a call that was carried out.
type CallResult struct {
	TxID         uint64  // the record; the answer may leave when it is durable
	Op           uint8   // the number of the kind of change
	Inode        InodeID // what was made or changed; of a grant, the lease's id
	Length       int64   // of the file, in bytes
	BlocksLength int64   // where its tail begins, in bytes
	Token        Token   // of a file opened by the call
	Flag         bool    // the file was taken over from another
}

// session has the results of one client process. One whose generation is not
// the tree's may be shared with a clone: it is copied before it is changed.
type session struct {
	gen     uint64
	last    int64  // Tree.Reigned with its last record
	acked   uint64 // no result up to this number is kept
	results []callResult
}

// callResult is a CallResult with the call's number; they are ordered by it.
type callResult struct {
	seq  uint64
	hash uint64
	res  CallResult
}

// idleItem orders sessions by age.
type idleItem struct {
	bucket int64 // last >> idleShift
	id     SessionID
}

// sessionItem is a session in its B-tree.
type sessionItem struct {
	id SessionID
	*session
}

func compareSessions(a, b SessionID) int { return bytes.Compare(a[:], b[:]) }

func lessSession(a, b sessionItem) bool { return compareSessions(a.id, b.id) < 0 }

func lessIdle(a, b idleItem) bool {
	return cmp.Or(cmp.Compare(a.bucket, b.bucket), compareSessions(a.id, b.id)) < 0
}

// none reports whether a record has no call.
func (c CallID) none() bool { return c.Session == SessionID{} }

func (t *Tree) session(id SessionID) *session {
	it, _ := t.sessions.Get(sessionItem{id: id})
	return it.session
}

// find returns where the result of a call is or would be.
func (s *session) find(seq uint64) (int, bool) {
	if n := len(s.results); n == 0 || s.results[n-1].seq < seq {
		return n, false
	}
	return slices.BinarySearchFunc(s.results, seq, func(r callResult, seq uint64) int { return cmp.Compare(r.seq, seq) })
}

// CallResult returns the answer of a call that was carried out before, and
// whether there is one. Errors are of kind InvalidArgument if the number was
// used for another request or is one that the client said it has the answer
// of, and Retry if too many results are kept to carry out one more call.
// A zero id is never known and never refused.
func (t *Tree) CallResult(id CallID) (CallResult, bool, error) {
	if id.none() {
		return CallResult{}, false, nil
	}
	s := t.session(id.Session)
	if s == nil {
		if t.sessions.Len() >= MaxSessions {
			return CallResult{}, false, tooMany("the namenode keeps the results of %d sessions, the most it can", MaxSessions)
		}
		return CallResult{}, false, nil
	}
	if id.Seq <= s.acked {
		return CallResult{}, false, fserror.New(fserror.InvalidArgument, "", "",
			"call %d of this session was answered, acknowledged and forgotten (all up to %d are); number calls upwards", id.Seq, s.acked)
	}
	i, found := s.find(id.Seq)
	if found {
		if s.results[i].hash != id.Hash {
			return CallResult{}, false, fserror.New(fserror.InvalidArgument, "", "",
				"call %d of this session was another request; use a new number for a new request", id.Seq)
		}
		return s.results[i].res, true, nil
	}
	if len(s.results) >= MaxUnacked {
		kept := len(s.results)
		if acked, found := s.find(id.Acked); found {
			kept -= acked + 1
		} else {
			kept -= acked
		}
		if kept >= MaxUnacked {
			return CallResult{}, false, tooMany("%d calls of this session are not acknowledged, the most there can be", MaxUnacked)
		}
	}
	return CallResult{}, false, nil
}

func tooMany(format string, n int) error {
	err := fserror.New(fserror.Retry, "", "", format, n)
	err.RetryAfter = retryMS * 1e6
	return err
}

// repeated reports whether the result of a call is kept, so that a record of
// it must not be applied again.
func (t *Tree) repeated(id CallID) bool {
	if id.none() {
		return false
	}
	s := t.session(id.Session)
	if s == nil {
		return false
	}
	_, found := s.find(id.Seq)
	return found
}

// remember keeps the result of an applied record for its call, and forgets
// what the client has acknowledged.
func (t *Tree) remember(e *Entry, r *Result) {
	if e.Call.none() {
		return
	}
	s := t.ownSession(e.Call.Session, t.reigned)
	if e.Call.Acked > s.acked {
		s.acked = e.Call.Acked
		i, found := s.find(s.acked)
		if found {
			i++
		}
		s.results = s.results[i:]
	}
	if e.Call.Seq <= s.acked {
		return
	}
	res := r.Answer(e.Op)
	i, _ := s.find(e.Call.Seq)
	s.results = slices.Insert(s.results, i, callResult{seq: e.Call.Seq, hash: e.Call.Hash, res: res})
}

// Answer is what the call of a record is answered, now and when it is repeated.
func (r *Result) Answer(op Op) CallResult {
	out := CallResult{TxID: r.TxID, Op: op.opType(), Inode: r.Inode, Length: r.Length, BlocksLength: r.BlocksLength, Flag: r.flag}
	if r.Opened != nil {
		out.Token = r.Opened.Token
	}
	if r.Granted != nil {
		out.Inode = InodeID(r.Lease)
	}
	return out
}

// ownSession returns a session to change, made or copied if need be, with its
// age as of now.
func (t *Tree) ownSession(id SessionID, now int64) *session {
	s := t.session(id)
	bucket := now >> idleShift
	switch {
	case s == nil:
		s = &session{gen: t.gen, last: now}
		t.sessions.ReplaceOrInsert(sessionItem{id: id, session: s})
		t.idle.ReplaceOrInsert(idleItem{bucket: bucket, id: id})
		return s
	case s.gen != t.gen:
		c := *s
		c.gen, c.results = t.gen, slices.Clone(s.results)
		s = &c
		t.sessions.ReplaceOrInsert(sessionItem{id: id, session: s})
	}
	if old := s.last >> idleShift; old != bucket {
		t.idle.Delete(idleItem{bucket: old, id: id})
		t.idle.ReplaceOrInsert(idleItem{bucket: bucket, id: id})
	}
	s.last = now
	return s
}

// Remembers reports whether results of a session are kept.
func (t *Tree) Remembers(id SessionID) bool { return t.session(id) != nil }

// expireSessions forgets a few sessions whose last record is older than
// SessionTTL (by up to one bucket), and returns them.
func (t *Tree) expireSessions() (forgotten []SessionID) {
	oldest := (t.reigned-SessionTTL)>>idleShift - 1
	for range expireSlice {
		it, ok := t.idle.Min()
		if !ok || it.bucket > oldest {
			break
		}
		t.idle.DeleteMin()
		t.sessions.Delete(sessionItem{id: it.id})
		forgotten = append(forgotten, it.id)
	}
	return forgotten
}
