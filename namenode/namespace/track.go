package namespace

// Call is who asks. It also collects what the answer depends on: the number of
// the newest record, not yet durable, that changed an inode or a name which
// the call looked at. The zero value is a user without a name or rights; a nil
// *Call is the namenode itself, which may everything and collects nothing.
// A Call is of one goroutine.
type Call struct {
	User   string
	Groups []string
	Super  bool // may everything: the superuser, or a member of the supergroup

	// ForUser and ForGroup, which only a superuser may say, are whose things are
	// that the call makes; empty: the caller's, and of their directory's group.
	ForUser, ForGroup string

	// NoNewUser refuses (NoSpace) to make a user an owner who was none.
	NoNewUser bool

	// Looks collects what the call has looked at, if Collect is set: for who
	// wants to keep the answer for as long as none of it changes. A call whose
	// answer cannot be kept takes Collect back.
	Collect bool
	Looks   []Change
	// DirLooks is how many of Looks a List had collected before it looked at the
	// first entry of the directory.
	DirLooks int

	asOf uint64
}

// AsOf returns the number of the record that must be durable before the answer
// may leave; 0 if there is none to wait for. It counts also what calls that
// failed have looked at.
func (c *Call) AsOf() uint64 {
	if c == nil {
		return 0
	}
	return c.asOf
}

// ChangeKind is what of an inode, or of a name, changes.
type ChangeKind uint8

// The kinds of changes.
const (
	// ChangeAttr: what stat shows of an inode and is not in ChangeEntries; also
	// that there is such an inode, and where it hangs.
	ChangeAttr ChangeKind = iota
	// ChangeEntries: which entries a directory has, how many, and its mtime.
	ChangeEntries
	// ChangeName: which inode, if any, has this name in this directory.
	ChangeName
	// ChangeLease: what there is to know of a granted lease; its id is in Inode.
	ChangeLease
)

// Change names something that can change.
type Change struct {
	Kind  ChangeKind
	Inode InodeID
	Name  string // of ChangeName
}

// safeModeChange: safe mode begins or ends. No inode has the number 0.
var safeModeChange = Change{Kind: ChangeAttr}

// tracked is one change and the record that made it.
type tracked struct {
	Change
	txid uint64
}

// tracker knows the changes that are not durable yet.
type tracker struct {
	pending map[Change]uint64 // the newest record of each; nil: off
	queue   []tracked         // in the order of records, from head on
	head    int
	newest  uint64
	// minAsOf is what every look at a clone counts as having seen, in txids.
	minAsOf uint64
}

// Track turns on or off the tracking of changes that are not durable. The
// active namenode has it on; it costs nothing while off.
func (t *Tree) Track(on bool) {
	switch {
	case t.frozen:
	case !on:
		t.tracker = tracker{}
	case t.pending == nil:
		t.pending = make(map[Change]uint64)
	}
}

// SetDurable forgets changes up to the record txid, which is durable. It takes
// amortised constant time for each change.
func (tr *tracker) SetDurable(txid uint64) {
	for tr.head < len(tr.queue) && tr.queue[tr.head].txid <= txid {
		c := &tr.queue[tr.head]
		if tr.pending[c.Change] == c.txid {
			delete(tr.pending, c.Change)
		}
		*c = tracked{}
		tr.head++
	}
	switch {
	case tr.head == len(tr.queue):
		tr.queue, tr.head = tr.queue[:0], 0
		tr.newest = 0
	case tr.head > len(tr.queue)/2:
		n := copy(tr.queue, tr.queue[tr.head:])
		clear(tr.queue[n:])
		tr.queue, tr.head = tr.queue[:n], 0
	}
}

// touch notes a change made by the record txid.
func (tr *tracker) touch(txid uint64, c Change) {
	if tr.pending == nil || tr.pending[c] == txid {
		return
	}
	tr.pending[c] = txid
	tr.queue = append(tr.queue, tracked{Change: c, txid: txid})
	tr.newest = txid
}

// look notes that a call has looked at something.
func (tr *tracker) look(c *Call, what Change) {
	if c == nil {
		return
	}
	if c.Collect {
		c.Looks = append(c.Looks, what)
	}
	c.asOf = max(c.asOf, tr.minAsOf)
	if len(tr.pending) > 0 {
		c.asOf = max(c.asOf, tr.pending[what])
	}
}
