package tables

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// Limits of passes.
const (
	// MaxPassBytes is how much memory passes may take, those that expired lately included.
	// The last quarter is for users whose passes take fewPassBytes at most.
	MaxPassBytes = 64 << 20
	// MaxUserPassBytes is how much those of one user may take.
	MaxUserPassBytes = 4 << 20
	// PassBytes is what each takes besides its names.
	PassBytes = 512
	// MaxPassTTL is for how long a pass is good at most without a renewal, in milliseconds: a day.
	MaxPassTTL = 24 * 3600 * 1000
	// MaxPassLife is for how long it can be renewed, in milliseconds: seven days.
	MaxPassLife = 7 * MaxPassTTL

	fewPassBytes  = MaxUserPassBytes / 64
	maxPassNames  = 4096 // bytes of names of one pass
	maxPassGroups = 1024
	expirePasses  = 64 // one record forgets so many that have expired
)

// Pass is a delegation token: its bearer is its user until it expires. Of the token
// itself only a hash is kept. (What is called a delegation elsewhere is of a directory.)
type Pass struct {
	ID      uint64   // the record that made it; it may be shown
	Sum     [32]byte // the SHA-256 of the token
	User    string   // who its bearer is
	Renewer string   // who may renew it
	// Groups are those of the user, if Known; else they are those that the namenode's
	// machine knows.
	Groups []string
	Known  bool
	TTL    int64 // milliseconds for which it is good after each renewal
	Issued int64 // Unix milliseconds by the journal, as Until
	Until  int64 // it is good before then

	spare string // a text in the layout that nothing has set
}

// Ends is when it expires for good, however often it is renewed.
func (p *Pass) Ends() int64 { return p.Issued + MaxPassLife }

// Fields is the layout of what the record of a new pass has.
func (p *Pass) Fields(c *codec.Coder) {
	c.Raw((*[16]byte)(p.Sum[:16]))
	c.Raw((*[16]byte)(p.Sum[16:]))
	c.Text(&p.User)
	c.Text(&p.spare)
	c.Text(&p.Renewer)
	c.Bool(&p.Known)
	codec.List(c, &p.Groups, 2, c.Text)
	c.I64(&p.TTL)
}

// names is how many bytes the names of a pass have.
func (p *Pass) names() int {
	n := len(p.User) + len(p.spare) + len(p.Renewer)
	for _, g := range p.Groups {
		n += len(g)
	}
	return n
}

// bytes is how much memory a pass takes; a group takes a header for its name, too.
func (p *Pass) bytes() int { return PassBytes + p.names() + 16*len(p.Groups) }

// can checks a pass by itself.
func (p *Pass) can() error {
	size := p.names()
	if slices.Contains(p.Groups, "") {
		size = maxPassNames + 1
	}
	switch {
	case p.User == "" || p.Renewer == "" || !p.Known && len(p.Groups) > 0:
		return fserror.New(fserror.InvalidArgument, "", "", "a delegation token needs a user and a renewer")
	case p.TTL <= 0 || p.TTL > MaxPassTTL:
		return fserror.New(fserror.InvalidArgument, "", "", "a delegation token is good for 1 ms to 24 hours at a time, not for %d ms", p.TTL)
	case size > maxPassNames || len(p.Groups) > maxPassGroups:
		return fserror.New(fserror.TooLarge, "", "", "the names of the user's %d groups are too long to be kept with a delegation token: %d bytes are the most, and %d groups", len(p.Groups), maxPassNames, maxPassGroups)
	}
	return nil
}

// Passes are the passes that were not cancelled and, but for the latest, have not expired.
// The zero value cannot be used.
type Passes struct {
	byID   Set[*Pass] // replaced, never changed
	bySum  Set[*Pass]
	byEnd  Set[*Pass]
	byUser Set[*Pass]
	counts Set[passCount]
	size   int // what all of them take
}

// passCount is how many passes a user has and what they take, those that have expired included.
type passCount struct {
	user    string
	n, size int
}

// NewPasses returns none.
func NewPasses() Passes {
	id := func(a, b *Pass) int { return cmp.Compare(a.ID, b.ID) }
	return Passes{
		byID: NewSet(func(a, b *Pass) bool { return a.ID < b.ID }),
		// Who finds out how much of a sum is right has learnt nothing of the token.
		bySum:  NewSet(func(a, b *Pass) bool { return bytes.Compare(a.Sum[:], b.Sum[:]) < 0 }),
		byEnd:  NewSet(func(a, b *Pass) bool { return cmp.Or(cmp.Compare(a.Until, b.Until), id(a, b)) < 0 }),
		byUser: NewSet(func(a, b *Pass) bool { return cmp.Or(cmp.Compare(a.User, b.User), id(a, b)) < 0 }),
		counts: NewSet(func(a, b passCount) bool { return a.user < b.user }),
	}
}

// Clone returns a snapshot.
func (t *Passes) Clone() Passes {
	return Passes{t.byID.Clone(), t.bySum.Clone(), t.byEnd.Clone(), t.byUser.Clone(), t.counts.Clone(), t.size}
}

// Len is how many there are.
func (t *Passes) Len() int { return t.byID.Len() }

// Find returns the pass of a token's hash, nil if there is none. It may have expired.
func (t *Passes) Find(sum [32]byte) *Pass {
	p, _ := t.bySum.Get(&Pass{Sum: sum})
	return p
}

// List calls fn for the passes of a user, or of all if it is empty, in the order of their
// numbers from the first after one on, until it returns false.
func (t *Passes) List(user string, after uint64, fn func(*Pass) bool) {
	if user == "" {
		t.byID.From(&Pass{ID: after + 1}, fn)
		return
	}
	t.byUser.From(&Pass{User: user, ID: after + 1}, func(p *Pass) bool { return p.User == user && fn(p) })
}

// exceeds reports whether a user's passes that have not expired take more than most with n
// bytes more.
func (t *Passes) exceeds(user string, n, most int, now int64) bool {
	if c, _ := t.counts.Get(passCount{user: user}); c.size+n <= most {
		return false
	}
	t.List(user, 0, func(p *Pass) bool {
		if p.Until > now {
			n += p.bytes()
		}
		return n <= most
	})
	return n > most
}

// expired calls fn for those that the next record forgets.
func (t *Passes) expired(now int64, fn func(*Pass)) {
	n := 0
	t.byEnd.Ascend(func(p *Pass) bool {
		if n == expirePasses || p.Until > now {
			return false
		}
		n++
		fn(p)
		return true
	})
}

// MayIssue returns why a pass cannot be made: InvalidArgument, TooLarge, Exists (the
// hash), Retry (there are too many). now is the time of records.
func (t *Passes) MayIssue(p *Pass, now int64) error {
	if err := p.can(); err != nil {
		return err
	}
	if t.Find(p.Sum) != nil {
		return fserror.New(fserror.Exists, "", "", "there is a delegation token of this hash: make another secret")
	}
	n, all := p.bytes(), t.size+p.bytes()
	t.expired(now, func(old *Pass) { all -= old.bytes() })
	whose := "user " + p.User
	switch {
	case t.exceeds(p.User, n, MaxUserPassBytes, now):
	case all <= MaxPassBytes/4*3, all <= MaxPassBytes && !t.exceeds(p.User, n, fewPassBytes, now):
		return nil
	default:
		whose = "all users"
	}
	return &fserror.Error{Kind: fserror.Retry, RetryAfter: RetryMS * 1e6, Message: "the delegation tokens of " + whose + " take as much memory as they may; cancel those that are not needed any more, or wait until they expire"}
}

// MayChange returns the pass of a number, or of a hash, that a user may renew, or cancel:
// NotFound, Permission, or of one that has expired by then InvalidArgument.
func (t *Passes) MayChange(id uint64, sum [32]byte, user string, super, cancel bool, now int64) (*Pass, error) {
	p := t.Find(sum)
	if id != 0 {
		p, _ = t.byID.Get(&Pass{ID: id})
	}
	switch {
	case p == nil || p.User != user && p.Renewer != user && !super:
		return nil, fserror.New(fserror.NotFound, "", "", "there is no such delegation token that user %s may renew or cancel: it was cancelled, has expired, or never was", user)
	case cancel:
		return p, nil
	case p.Until <= now:
		return nil, fserror.New(fserror.InvalidArgument, "", "", "delegation token %d has expired: get another one", p.ID)
	case p.Renewer != user:
		return nil, fserror.New(fserror.Permission, "", "", "only user %s may renew delegation token %d", p.Renewer, p.ID)
	}
	return p, nil
}

// Issue adds a pass that a record makes, and forgets some that have expired.
func (t *Passes) Issue(p Pass, id uint64, now int64) (*Pass, error) {
	if err := p.can(); err != nil {
		return nil, err
	}
	if t.Find(p.Sum) != nil {
		return nil, fserror.New(fserror.Exists, "", "", "its hash is known")
	}
	var gone []*Pass
	t.expired(now, func(old *Pass) { gone = append(gone, old) })
	for _, old := range gone {
		t.remove(old)
	}
	p.ID, p.Issued, p.Until = id, now, now+p.TTL
	p.User, p.spare, p.Renewer = strings.Clone(p.User), strings.Clone(p.spare), strings.Clone(p.Renewer)
	groups := make([]string, len(p.Groups))
	for i, g := range p.Groups {
		groups[i] = strings.Clone(g)
	}
	p.Groups = groups
	t.add(&p)
	return &p, nil
}

// Change renews a pass for its time, or cancels it. NotFound: there is none of that number.
func (t *Passes) Change(id uint64, cancel bool, now int64) (*Pass, error) {
	old, ok := t.byID.Get(&Pass{ID: id})
	if !ok {
		return nil, fserror.New(fserror.NotFound, "", "", "there is no delegation token %d", id)
	}
	t.remove(old)
	p := *old
	if p.Until = min(now+p.TTL, p.Ends()); cancel {
		p.Until = 0
	} else {
		t.add(&p)
	}
	return &p, nil
}

func (t *Passes) add(p *Pass) {
	for _, s := range []Set[*Pass]{t.byID, t.bySum, t.byEnd, t.byUser} {
		s.ReplaceOrInsert(p)
	}
	t.tally(p, 1)
}

func (t *Passes) remove(p *Pass) {
	for _, s := range []Set[*Pass]{t.byID, t.bySum, t.byEnd, t.byUser} {
		s.Delete(p)
	}
	t.tally(p, -1)
}

func (t *Passes) tally(p *Pass, d int) {
	t.size += d * p.bytes()
	c, _ := t.counts.Get(passCount{user: p.User})
	if c = (passCount{p.User, c.n + d, c.size + d*p.bytes()}); c.n == 0 {
		t.counts.Delete(c)
		return
	}
	t.counts.ReplaceOrInsert(c)
}

// Code is the layout in an image of record txid, which was made at a time.
func (t *Passes) Code(c *codec.Coder, txid uint64, now int64) {
	t.byID.Code(c, func(x **Pass) {
		p := new(Pass)
		if c.Writes() {
			*p = **x // Coders take no promises not to write
		}
		c.U64(&p.ID)
		p.Fields(c)
		c.I64(&p.Issued)
		c.I64(&p.Until)
		*x = p
	}, func(_, p *Pass) bool {
		good := p.good(txid, now) && t.Find(p.Sum) == nil
		t.add(p)
		return good
	})
}

// good reports whether it can be in a state of record txid, which was made at a time.
func (p *Pass) good(txid uint64, now int64) bool {
	return p.can() == nil && p.ID > 0 && p.ID <= txid && p.Issued <= now && p.Until > p.Issued && p.Until <= min(now+p.TTL, p.Ends())
}

// Check finds where the parts disagree.
func (t *Passes) Check(problem Problem, txid uint64, now int64) {
	counts := make(map[string]passCount)
	size := 0
	t.byID.Ascend(func(p *Pass) bool {
		c := counts[p.User]
		counts[p.User] = passCount{p.User, c.n + 1, c.size + p.bytes()}
		size += p.bytes()
		if !p.good(txid, now) {
			problem("delegation token %d cannot be: %+v", p.ID, *p)
		}
		for _, s := range []Set[*Pass]{t.bySum, t.byEnd, t.byUser} {
			if q, ok := s.Get(p); !ok || q != p {
				problem("delegation token %d is not found by all that it has", p.ID)
			}
		}
		return true
	})
	t.counts.Ascend(func(c passCount) bool {
		if have := counts[c.user]; have != c {
			problem("user %s has %d delegation tokens of %d bytes, but counts %d of %d", c.user, have.n, have.size, c.n, c.size)
		}
		delete(counts, c.user)
		return true
	})
	if len(counts) > 0 {
		problem("delegation tokens of %d users are not counted", len(counts))
	}
	if size != t.size {
		problem("the delegation tokens take %d bytes, but count %d", size, t.size)
	}
	if n := t.Len(); t.bySum.Len() != n || t.byEnd.Len() != n || t.byUser.Len() != n {
		problem("there are %d delegation tokens, and %d, %d and %d by what they have", n, t.bySum.Len(), t.byEnd.Len(), t.byUser.Len())
	}
}
