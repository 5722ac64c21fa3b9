package namespace

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// leaseModel is what the model knows of granted leases, of ages, and of the
// sessions that may cache.
type leaseModel struct {
	leases  map[LeaseID]*modelLease // that live, or have ended as by older records
	dead    []*deadLease            // in the order of their ends
	gone    map[InodeID]LeaseID     // attached files whose directory was deleted
	ages    map[AgeKey]int64
	caching map[SessionID]int64
	seq     uint64 // of calls
	bulk    bool   // many files were made
}

type modelLease struct {
	ttl   int64
	owner string
	ended uint64 // the record
	name  string
}

// named is the lease that has a name and lives; 0 if there is none.
func (m *machine) named(name string) LeaseID {
	for id, l := range m.leases {
		if l.name == name && l.ended == 0 {
			return id
		}
	}
	return 0
}

// deadLease is one that has ended, and what was attached to it and has memory.
type deadLease struct {
	id    LeaseID
	ended uint64
	files []InodeID // by number
}

func (m *machine) initLeases() {
	m.leases, m.gone = make(map[LeaseID]*modelLease), make(map[InodeID]LeaseID)
	m.ages, m.caching = make(map[AgeKey]int64), make(map[SessionID]int64)
}

var leaseIDs = []LeaseID{1, 2, 3, 1 << 40, tables.MaxLeaseID}

// drawLease draws an id, usually of a lease that there is; or, with none, 0.
func (m *machine) drawLease(t *rapid.T, none bool) LeaseID {
	if none && rapid.Bool().Draw(t, "no lease") {
		return 0
	}
	ids := slices.Sorted(maps.Keys(m.leases))
	if len(ids) == 0 || rapid.IntRange(0, 4).Draw(t, "any lease") == 0 {
		ids = leaseIDs
	}
	return rapid.SampledFrom(ids).Draw(t, "lease")
}

func (m *machine) lives(id LeaseID) bool { return m.leases[id] != nil && m.leases[id].ended == 0 }

// ending reports whether a file is about to be deleted with its lease.
func (m *machine) ending(n *modelNode) bool {
	return n != nil && n.lease != 0 && m.leases[n.lease].ended != 0
}

// attached returns the files of a lease in the order in which they are deleted,
// those of deleted directories included as long as they have memory.
func (m *machine) attached(id LeaseID) (files []InodeID) {
	for _, n := range m.nodes {
		if n.lease == id {
			files = append(files, n.id)
		}
	}
	for inode, lease := range m.gone {
		if m.tree.get(inode) == nil || m.tree.LeaseOf(inode) == 0 {
			delete(m.gone, inode)
		} else if lease == id {
			files = append(files, inode)
		}
	}
	slices.Sort(files)
	return files
}

func (m *machine) Grant(t *rapid.T) {
	id := rapid.SampledFrom(append([]LeaseID{0, tables.MaxLeaseID + 1}, leaseIDs...)).Draw(t, "lease")
	ttl := rapid.SampledFrom([]int64{-1, 0, 1, 60_000, tables.MaxLeaseTTL, tables.MaxLeaseTTL + 1}).Draw(t, "ttl")
	name := rapid.SampledFrom([]string{"", "n-1", "n-2", "f00"}).Draw(t, "name")
	var want fserror.Kind
	switch {
	case name == "f00", id == 0 || id > tables.MaxLeaseID || ttl < 1 || ttl > tables.MaxLeaseTTL:
		want = fserror.InvalidArgument
	case m.leases[id] != nil && m.leases[id].ended != 0:
		t.Skip("its files would be taken for those of the new one")
	case m.leases[id] != nil, name != "" && m.named(name) != 0:
		want = fserror.Exists
	}
	op, err := PlanGrant(m.tree, nil, Lease{ID: id, TTL: ttl, Owner: Owner{User: "u1", Client: "c", Host: "h"}, Name: name})
	if !expect(t, fmt.Sprintf("grant %x", uint64(id)), err, want) {
		return
	}
	// The call may be repeated, and gets the lease's id again.
	m.seq++
	call := CallID{Session: SessionID{7}, Seq: m.seq, Hash: m.seq}
	res, err := m.apply(call, op)
	if err != nil || res.Lease != id || res.Granted == nil || res.Granted.TTL != ttl || res.Granted.Since != m.now {
		t.Fatalf("grant: %+v, %v", res, err)
	}
	got, known, err := m.tree.CallResult(call)
	if err != nil || !known || got.Inode != InodeID(id) || got.TxID != res.TxID || got.Op != opType(op) {
		t.Fatalf("the grant's call has the result %+v %v, %v", got, known, err)
	}
	if _, err := m.apply(call, op); err == nil {
		t.Fatalf("a grant was applied twice")
	}
	m.leases[id] = &modelLease{ttl: ttl, owner: "u1", name: name}
	if name != "" && m.tree.NamedLease(nil, "u1", name) != id || m.tree.NamedLease(nil, "u2", name) != 0 {
		t.Fatalf("the name %q leads elsewhere", name)
	}
}

// forget takes files that a record deleted with their leases out of the model.
func (m *machine) forget(t *rapid.T, files []InodeID, res Result) {
	if res.Deleted != len(files) {
		t.Fatalf("%d files were deleted, should be %v", res.Deleted, files)
	}
	closed := make(map[InodeID]uint64)
	for _, c := range res.Closed {
		if c.Reason != ReasonDeleted {
			t.Fatalf("deleted with its lease, but closed as %+v", c)
		}
		closed[c.Inode] = c.Epoch
	}
	dead := make(map[InodeID]bool)
	for _, id := range files {
		dead[id] = true
		delete(m.gone, id)
	}
	var going []string // and what is below
	for p := range m.nodes {
		for at := p; at != "/"; at, _ = fspath.Split(at) {
			if dead[m.nodes[at].id] {
				going = append(going, p)
				break
			}
		}
	}
	for _, p := range going {
		n := m.nodes[p]
		delete(m.nodes, p)
		if n.lease != 0 && !dead[n.id] {
			m.gone[n.id] = n.lease
		}
		if n.open {
			if closed[n.id] != n.writer.Epoch {
				t.Fatalf("writer %+v was not closed: %+v", n.writer, res.Closed)
			}
			delete(closed, n.id)
			if err := m.tree.CheckWriter(nil, n.writer); fserror.KindOf(err) != fserror.LeaseLostGone {
				t.Fatalf("the writer of a deleted file: %v", err)
			}
		}
	}
	if len(closed) > 0 {
		t.Fatalf("closed what was not open: %+v", res.Closed)
	}
	m.sweep()
}

// sweep forgets leases that have ended and have no files.
func (m *machine) sweep() {
	for id, l := range m.leases {
		if l.ended != 0 && len(m.attached(id)) == 0 {
			delete(m.leases, id)
		}
	}
	for _, l := range m.dead { // what else takes the memory of dead files: their names, or directories
		l.files = slices.DeleteFunc(l.files, func(id InodeID) bool { return m.tree.get(id) == nil || m.tree.LeaseOf(id) == 0 })
	}
	m.dead = slices.DeleteFunc(m.dead, func(l *deadLease) bool { return len(l.files) == 0 })
}

func (m *machine) End(t *rapid.T) {
	id := m.drawLease(t, false)
	var want fserror.Kind
	if !m.lives(id) {
		want = fserror.NotFound
	}
	op, err := PlanEnd(m.tree, nil, id, rapid.SampledFrom([]string{LeaseExpired, LeaseRevoked}).Draw(t, "reason"))
	if !expect(t, fmt.Sprintf("end lease %x", uint64(id)), err, want) {
		return
	}
	files := m.attached(id)
	old := rapid.IntRange(0, 3).Draw(t, "old") == 0
	for _, f := range files {
		old = old && !m.tree.IsDir(f) // older journals have only files attached
	}
	var record Op = op
	if old {
		record = &OpEndLease{ID: op.ID, Reason: op.Reason}
	}
	res := m.must(t, record)
	if !res.LeaseEnded || res.Lease != id {
		t.Fatalf("end of lease %x: %+v", uint64(id), res)
	}
	if old {
		m.leases[id].ended = res.TxID
		m.forget(t, files[:min(endFiles, len(files))], res)
		return
	}
	delete(m.leases, id)
	m.dead = append(m.dead, &deadLease{id, res.TxID, files})
	res.Deleted = len(files)
	m.forget(t, files, res)
}

func (m *machine) Reap(t *rapid.T) { m.reap(t, rapid.IntRange(0, 20).Draw(t, "limit")) }

func (m *machine) reap(t *rapid.T, limit int) {
	m.sweep()
	ended := slices.Clone(m.dead)
	for id, l := range m.leases {
		if l.ended != 0 {
			ended = append(ended, &deadLease{id, l.ended, nil})
		}
	}
	slices.SortFunc(ended, func(a, b *deadLease) int { return int(a.ended) - int(b.ended) })
	for after := uint64(0); len(ended) > 0; ended = ended[1:] {
		l, ok := m.tree.EndedLease(after)
		if !ok || l.ID != ended[0].id || l.Dead != (ended[0].files != nil) {
			t.Fatalf("lease %+v ended after record %d, want %+v", l, after, ended[0])
		}
		after = l.Ended
		files := ended[0].files
		if !l.Dead {
			files = m.attached(l.ID)
		}
		files = slices.Clone(files[:min(limit, len(files))])
		limit -= len(files)
		m.forget(t, files, m.must(t, &OpReap{ID: l.ID, Limit: uint32(len(files))}))
	}
}

// Bulk attaches more files to a lease than the record of its end deletes.
func (m *machine) Bulk(t *rapid.T) {
	id := m.drawLease(t, false)
	if m.bulk || !m.lives(id) || m.nodes["/bulk"] != nil {
		t.Skip("no lease, or done before")
	}
	m.bulk = true
	m.nodes["/bulk"] = &modelNode{id: m.mkdir(t, "/bulk"), typ: TypeDir}
	for i := range endFiles + 6 {
		path := fmt.Sprintf("/bulk/%d", i)
		m.nodes[path] = &modelNode{id: m.attachNew(t, id, path), typ: TypeFile, bytes: "x", lease: id}
	}
}

// attachable is what the plans for attaching and detaching a path must say.
func (m *machine) attachable(path string) (want fserror.Kind) {
	missing, want := m.way(path)
	n := m.nodes[path]
	switch {
	case want != 0:
	case missing || n == nil:
		want = fserror.NotFound
	case path == "/":
		want = fserror.InvalidArgument
	case m.ending(n):
		want = fserror.NotFound
	}
	return want
}

func (m *machine) Attach(t *rapid.T) {
	path, id := m.known(t, "path"), m.drawLease(t, false)
	want := fserror.NotFound
	if m.lives(id) {
		want = m.attachable(path)
	}
	op, err := PlanAttach(m.tree, nil, id, At(path))
	if !expect(t, "attach "+path, err, want) {
		return
	}
	if n := m.nodes[path]; (op == nil) != (n.lease == id) {
		t.Fatalf("attach %s: %+v", path, op)
	}
	if op == nil {
		return
	}
	res := m.must(t, op)
	if n := m.nodes[path]; res.Lease != id || res.Inode != n.id || res.Length != int64(len(n.bytes)) {
		t.Fatalf("attach %s: %+v", path, res)
	}
	m.nodes[path].lease = id
}

func (m *machine) Detach(t *rapid.T) {
	path := m.known(t, "path")
	op, err := PlanDetach(m.tree, nil, At(path))
	if !expect(t, "detach "+path, err, m.attachable(path)) {
		return
	}
	n := m.nodes[path]
	if (op == nil) != (n.lease == 0) {
		t.Fatalf("detach %s: %+v", path, op)
	}
	if op != nil {
		m.must(t, op)
		n.lease = 0
	}
}

func (m *machine) Ages(t *rapid.T) {
	var op OpAges
	for range rapid.IntRange(1, 3).Draw(t, "ages") {
		a := Age{MS: rapid.Int64Range(0, 3).Draw(t, "age")}
		can := true
		switch rapid.IntRange(0, 2).Draw(t, "of") {
		case 0:
			a.Session = SessionID{rapid.SampledFrom([]byte{1, 3, 9}).Draw(t, "session")} // 3 and 9 have files
		case 1:
			a.Inode = InodeID(rapid.Uint64Range(1, uint64(m.tree.nextInode)).Draw(t, "inode"))
			can = m.isOpen(a.Inode)
		case 2:
			a.Lease = m.drawLease(t, false)
			can = m.lives(a.Lease)
		}
		op.Ages = append(op.Ages, a)
		if a.MS == 0 || !can {
			delete(m.ages, a.AgeKey)
		} else {
			m.ages[a.AgeKey] = a.MS
		}
	}
	m.must(t, &op)
}

// heard is called when the writer of a file has made a record.
func (m *machine) heard(n *modelNode) {
	delete(m.ages, AgeKey{Session: n.session})
	delete(m.ages, AgeKey{Inode: n.id})
}

func (m *machine) isOpen(id InodeID) bool {
	for _, n := range m.nodes {
		if n.id == id {
			return n.open
		}
	}
	return false
}

func (m *machine) Caching(t *rapid.T) {
	op := &OpCaching{Session: SessionID{byte(rapid.IntRange(1, 4).Draw(t, "session"))}, Term: rapid.Int64Range(0, 3).Draw(t, "term")}
	m.must(t, op)
	if m.caching[op.Session] = op.Term; op.Term == 0 {
		delete(m.caching, op.Session)
	}
}

// checkLeases compares the leases, the ages and the caching sessions.
func (m *machine) checkLeases(t *rapid.T) {
	m.sweep()
	live, ended, attached := 0, 0, 0
	for id, want := range m.leases {
		l, ok := m.tree.Lease(nil, id)
		files := m.attached(id)
		if want.ended != 0 {
			if ok || len(m.tree.LeaseFiles(id, 0, 1)) > 0 {
				t.Fatalf("lease %x has ended and is there", uint64(id))
			}
			attached += len(files)
			ended++
			continue
		}
		if !ok || l.ID != id || l.TTL != want.ttl || l.Owner.User != want.owner || l.Ended != 0 || l.Files != len(files) {
			t.Fatalf("lease %x is %+v, should be %+v with %d files", uint64(id), l, want, len(files))
		}
		after, limit := InodeID(0), len(files)+1
		if len(files) > 2 {
			after, limit, files = files[0], 2, files[1:]
			files = files[:min(2, len(files))]
		}
		if got := m.tree.LeaseFiles(id, after, limit); !slices.Equal(got, files) {
			t.Fatalf("files of lease %x after %d: %v, should be %v", uint64(id), after, got, files)
		}
		attached += l.Files
		live++
	}
	for _, l := range m.dead {
		attached += len(l.files)
		ended++
	}
	last := LeaseID(0)
	m.tree.Leases(func(l Lease) bool {
		if l.ID <= last || !m.lives(l.ID) {
			t.Fatalf("lease %x is out of order, or does not live", uint64(l.ID))
		}
		last = l.ID
		live--
		return true
	})
	if c := m.tree.Counts(); live != 0 || m.tree.EndedLeases() != ended || c.Leases != len(m.leases)+len(m.dead) || c.Attached != attached {
		t.Fatalf("%d leases too few, %d ended, counts %+v; should be %d ended, %d attached", live, m.tree.EndedLeases(), c, ended, attached)
	}

	for k := range m.ages {
		if (k.Inode != 0 && !m.isOpen(k.Inode)) || (k.Lease != 0 && !m.lives(k.Lease)) {
			delete(m.ages, k)
		}
	}
	ages := make(map[AgeKey]int64)
	m.tree.Ages(func(a Age) bool {
		ages[a.AgeKey] = a.MS
		return true
	})
	if !maps.Equal(ages, m.ages) {
		t.Fatalf("ages are %v, should be %v", ages, m.ages)
	}
	sessions, term := m.tree.CachingSessions()
	longest := int64(0)
	for id, term := range m.caching {
		longest = max(longest, term)
		if m.tree.Caching(id) != term || !slices.Contains(sessions, id) {
			t.Fatalf("session %x may cache for %d, should for %d", id, m.tree.Caching(id), term)
		}
	}
	if len(sessions) != len(m.caching) || term != longest {
		t.Fatalf("%d sessions may cache for up to %d, should be %v", len(sessions), term, m.caching)
	}
}
