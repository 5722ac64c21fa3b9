package history

import (
	"cmp"

	"github.com/leasefs/leasefs/namenode/namespace"
)

// Span is a time for which somebody held a file or a granted lease, or of which nothing is
// known.
type Span struct {
	TxID uint64 // the record that ended it
	N    uint32 // its place among those that this record ended
	// Gap: nothing is known of what ended behind the record Epoch and up to TxID. Only the
	// times are set besides.
	Gap bool

	Lease namespace.LeaseID // the granted lease; 0: it is about a file
	Name  string            // of that lease, if it has one

	Inode namespace.InodeID
	Epoch uint64            // the record that opened the file
	Dir   namespace.InodeID // the directory of Path
	Path  string            // when it ended; empty: it was in a directory that was deleted

	Holder   *namespace.Holder // with neither session nor process if it is about a lease
	From, To int64             // Unix milliseconds by the journal
	Why      string            // it ended, see Why
	By       *namespace.Owner  // who ended it, if another than the holder; may be nil

	by *namespace.Holder // By in a frame
}

// What Why tells besides namespace's reasons of closed files and the reasons of records of
// recovery ("soft limit", "hard limit", "forced", "same client", "repair").
const (
	LeaseExpired = "lease expired" // the granted lease that a file was attached to
	LeaseRevoked = "lease revoked"
	LeaseEnded   = "lease ended" // one of the two
)

// Why is why a record closed a file or deleted a name, and by whom, if that is known and no
// matter of course; closed is the reason that namespace gives for a file, else empty.
func Why(e *namespace.Entry, r *namespace.Result, closed string) (why string, by *namespace.Owner) {
	why, by = closed, e.By
	for _, op := range namespace.Parts(e.Op) {
		switch op := op.(type) {
		case *namespace.OpRecover:
			return op.Reason, by
		case *namespace.OpEnd:
			return "lease " + op.Reason, by
		case *namespace.OpEndLease:
			return "lease " + op.Reason, by
		case *namespace.OpDelete:
			why = namespace.ReasonDeleted
		case *namespace.OpRename:
			if why == "" && op.Replace != 0 {
				why = namespace.ReasonReplaced
			}
		case *namespace.OpCreate:
			if op.Replace != 0 {
				why = cmp.Or(why, namespace.ReasonReplaced)
				by = cmp.Or(by, &namespace.Owner{User: op.User})
			}
		}
	}
	switch {
	case why == "": // all that else deletes: what is removed, or has to make room, after that
		return LeaseEnded, nil
	case r.Opened != nil:
		h := &r.Opened.Holder
		by = &namespace.Owner{User: h.User, Client: h.Client, Host: h.Host}
	}
	return why, by
}

// spansOf appends what a record ended. The namespace is locked.
func spansOf(to []Span, e *namespace.Entry, r *namespace.Result) []Span {
	var paths map[namespace.InodeID]*namespace.Event
	if len(r.Closed) > 4 {
		paths = make(map[namespace.InodeID]*namespace.Event, len(r.Events))
		for i := range r.Events {
			paths[r.Events[i].Inode] = &r.Events[i]
		}
	}
	n := uint32(0)
	for i := range r.Closed {
		f := &r.Closed[i]
		s := Span{TxID: e.TxID, N: n, Inode: f.Inode, Epoch: f.Epoch, Holder: f.Holder, From: f.Since, To: e.Time, Why: f.Reason}
		if f.Reason != namespace.ReasonClosed {
			s.Why, s.By = Why(e, r, f.Reason)
		}
		ev := paths[f.Inode]
		if paths == nil {
			for j := range r.Events {
				if r.Events[j].Inode == f.Inode {
					ev = &r.Events[j]
					break
				}
			}
		}
		if ev != nil {
			s.Path, s.Dir = ev.Path, ev.Dir
		}
		to = append(to, s)
		n++
	}
	if l := r.Ended; l != nil {
		h := &namespace.Holder{User: l.Owner.User, Client: l.Owner.Client, Host: l.Owner.Host}
		to = append(to, Span{TxID: e.TxID, N: n, Lease: l.ID, Name: l.Name, Holder: h, From: l.Since, To: e.Time, Why: r.Reason, By: e.By})
	}
	return to
}

// size is what a span takes in memory while it waits, about, in bytes.
func (s *Span) size() int64 { return 256 + int64(len(s.Path)+len(s.Name)) }
