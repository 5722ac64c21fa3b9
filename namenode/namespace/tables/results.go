package tables

import (
	"cmp"
	"slices"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// Limits of the results kept so that a repeated call gets the answer of the
// first (RIFL, SOSP 2015).
const (
	// SessionTTL is how long after its last record the results of a session are
	// kept, in milliseconds of reigns. No client repeats a change for longer; who cancels an
	// opening call may, and is told that it is done.
	SessionTTL = 10 * 60 * 1000
	// MaxUnacked is how far a call's number may be ahead of the acknowledged ones, and
	// so how many results of a session are kept at most.
	MaxUnacked = 16384
	// MaxSessions is how many sessions may have results.
	MaxSessions = 1 << 20

	// idleShift makes buckets of 16 seconds: a session moves within the order
	// of age once in so long, not with each record.
	idleShift = 14
	// expireSlice is how many sessions one record may let expire.
	expireSlice = 8
	// RetryMS is what a refused caller is told to wait.
	RetryMS = 1000
)

// CallID makes a request happen at most once. The zero value means that the
// record has none (it is the namenode's own).
type CallID struct {
	Session SessionID
	Seq     uint64
	Acked   uint64 // results of calls up to this one may be forgotten
	Hash    uint64 // of the request, to tell a retry from a reused number
}

// AnyRequest as a CallID's Hash finds the result of the number, whatever its request was. A record
// with it takes the number away from all requests.
const AnyRequest = 0

// None reports whether a record has no call.
func (c CallID) None() bool { return c.Session == SessionID{} }

// Code is the layout in a record: one byte 0 without a call.
func (c *CallID) Code(to *codec.Coder) {
	has := !c.None()
	to.Bool(&has)
	if !has {
		return
	}
	to.Raw((*[16]byte)(&c.Session))
	to.U64(&c.Seq)
	to.U64(&c.Acked)
	to.Sum64(&c.Hash)
	if !to.Writes() && to.OK() && c.None() {
		to.Fail("a call without a session")
	}
}

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

// Results keeps the results of calls, by session.
type Results struct {
	gen      uint64 // grows with each clone, see session
	sessions Set[sessionItem]
	idle     Set[idleItem] // the same by age
}

// session has the results of one client process. One whose generation is not
// the table's may be shared with a clone: it is copied before it is changed.
type session struct {
	gen     uint64
	last    int64  // time of reigns with its last record
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

func lessSession(a, b sessionItem) bool { return compareSessions(a.id, b.id) < 0 }

func lessIdle(a, b idleItem) bool {
	return cmp.Or(cmp.Compare(a.bucket, b.bucket), compareSessions(a.id, b.id)) < 0
}

// NewResults returns an empty table.
func NewResults() Results {
	return Results{gen: 1, sessions: NewSet(lessSession), idle: NewSet(lessIdle)}
}

// Clone returns a snapshot.
func (t *Results) Clone() Results {
	t.gen++
	return Results{gen: t.gen, sessions: t.sessions.Clone(), idle: t.idle.Clone()}
}

// Len is how many sessions have results.
func (t *Results) Len() int { return t.sessions.Len() }

// Has reports whether results of a session are kept.
func (t *Results) Has(id SessionID) bool { return t.session(id) != nil }

func (t *Results) session(id SessionID) *session {
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

// Find returns the answer of a call that was carried out before, and whether there
// is one. Errors are of kind InvalidArgument if the number was used for another
// request or is one that the client said it has the answer of, and Retry if too
// many results are kept to carry out one more call. A zero id is never known and
// never refused.
func (t *Results) Find(id CallID) (CallResult, bool, error) {
	if id.None() {
		return CallResult{}, false, nil
	}
	s := t.session(id.Session)
	if s == nil {
		if t.sessions.Len() >= MaxSessions {
			return CallResult{}, false, TooMany("the namenode keeps the results of %d sessions, the most it can", MaxSessions)
		}
		return CallResult{}, false, nil
	}
	if id.Seq <= s.acked {
		return CallResult{}, false, fserror.New(fserror.InvalidArgument, "", "",
			"call %d of this session was answered, acknowledged and forgotten (all up to %d are); number calls upwards", id.Seq, s.acked)
	}
	i, found := s.find(id.Seq)
	if found {
		if id.Hash != AnyRequest && s.results[i].hash != id.Hash {
			return CallResult{}, false, fserror.New(fserror.InvalidArgument, "", "",
				"call %d of this session was another request; use a new number for a new request", id.Seq)
		}
		return s.results[i].res, true, nil
	}
	// By number, not by how many are kept: the oldest call is taken however late it
	// comes, since no later one can be acknowledged before it.
	if id.Seq-max(s.acked, id.Acked) > MaxUnacked {
		return CallResult{}, false, TooMany("%d calls of this session are not acknowledged, the most there can be", MaxUnacked)
	}
	return CallResult{}, false, nil
}

// TooMany is an error of kind Retry that names a limit.
func TooMany(format string, n int) error {
	err := fserror.New(fserror.Retry, "", "", format, n)
	err.RetryAfter = RetryMS * 1e6
	return err
}

// Repeated reports whether the result of a call is kept, so that a record of
// it must not be applied again.
func (t *Results) Repeated(id CallID) bool {
	if id.None() {
		return false
	}
	s := t.session(id.Session)
	if s == nil {
		return false
	}
	_, found := s.find(id.Seq)
	return found
}

// Remember keeps the result of a call, and forgets what the client has
// acknowledged. now is the time of reigns.
func (t *Results) Remember(id CallID, now int64, res CallResult) {
	if id.None() {
		return
	}
	s := t.own(id.Session, now)
	if id.Acked > s.acked {
		s.acked = id.Acked
		i, found := s.find(s.acked)
		if found {
			i++
		}
		s.results = s.results[i:]
	}
	if id.Seq <= s.acked {
		return
	}
	i, _ := s.find(id.Seq)
	s.results = slices.Insert(s.results, i, callResult{seq: id.Seq, hash: id.Hash, res: res})
}

// own returns a session to change, made or copied if need be, with its age as of
// now.
func (t *Results) own(id SessionID, now int64) *session {
	s := t.session(id)
	bucket := now >> idleShift
	switch {
	case s == nil:
		s = &session{gen: t.gen, last: now}
		t.add(id, s)
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

func (t *Results) add(id SessionID, s *session) {
	t.sessions.ReplaceOrInsert(sessionItem{id: id, session: s})
	t.idle.ReplaceOrInsert(idleItem{bucket: s.last >> idleShift, id: id})
}

// Expire forgets a few sessions whose last record is older than SessionTTL (by up
// to one bucket), and returns them. now is the time of reigns.
func (t *Results) Expire(now int64) (forgotten []SessionID) {
	oldest := (now-SessionTTL)>>idleShift - 1
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

// Code is the layout in an image.
func (t *Results) Code(c *codec.Coder) {
	result := func(r *callResult) { r.code(c) }
	t.sessions.Code(c, func(s *sessionItem) {
		if !c.Writes() {
			s.session = &session{gen: t.gen}
		}
		c.Raw((*[16]byte)(&s.id))
		c.I64(&s.last)
		c.U64(&s.acked)
		codec.List(c, &s.results, 32, result)
	}, func(_, s sessionItem) bool {
		t.add(s.id, s.session)
		return s.id != SessionID{} && s.ordered()
	})
}

func (r *callResult) code(c *codec.Coder) {
	c.U64(&r.seq)
	c.Sum64(&r.hash)
	c.U64(&r.res.TxID)
	c.U8(&r.res.Op)
	c.U64((*uint64)(&r.res.Inode))
	c.I64(&r.res.Length)
	c.I64(&r.res.BlocksLength)
	c.Raw((*[16]byte)(&r.res.Token))
	c.Bool(&r.res.Flag)
}

// ordered reports whether the results are in order, and none is acknowledged.
func (s *session) ordered() bool {
	seq := s.acked
	for _, r := range s.results {
		if r.seq <= seq {
			return false
		}
		seq = r.seq
	}
	return true
}

// Check finds where the parts disagree.
func (t *Results) Check(problem Problem) {
	if t.sessions.Len() != t.idle.Len() {
		problem("there are %d sessions, %d by age", t.sessions.Len(), t.idle.Len())
	}
	t.sessions.Ascend(func(s sessionItem) bool {
		if !t.idle.Has(idleItem{bucket: s.last >> idleShift, id: s.id}) {
			problem("session %x is not in the order of age", s.id)
		}
		if !s.ordered() {
			problem("session %x has results out of order", s.id)
		}
		return true
	})
}
