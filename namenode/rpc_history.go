package namenode

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/history"
	"github.com/leasefs/leasefs/namenode/leases"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// LeaseHistory tells who held a file or a granted lease: first, on the first page, who does
// now, then who did, the last end first. As with leases, everybody may ask who holds what; the
// path of a file only its holder is told, and who may list its directory, as it is now, or has named
// the path and may search there.
func (s *granted) LeaseHistory(ctx context.Context, r *pb.LeaseHistoryRequest) (*pb.LeaseHistoryResponse, error) {
	c, err := s.caller(ctx, r.GetCaller())
	if err != nil {
		return nil, err
	}
	if err := s.role.Active(); err != nil {
		return nil, err
	}
	q := history.Query{Since: r.GetSinceUnixMs(), Limit: clampLimit(r.GetLimit(), 100, 1000)}
	if text := r.GetCursor(); text != "" {
		if n, err := fmt.Sscanf(text, "%d.%d", &q.Before.TxID, &q.Before.N); err != nil || n != 2 || text != placeText(q.Before) {
			return nil, fserror.New(fserror.InvalidArgument, "", "", "%q is no cursor of this call", text)
		}
	}
	var last uint64
	var now []history.Span
	if err := s.looks.In(ctx, c.User, func() error { // it may look at all leases
		return s.engine.View(ctx, c, func(tx *engine.Tx) (err error) {
			last, _ = tx.Tree.Last()
			now, err = s.heldNow(tx, c, r, &q)
			return err
		})
	}); err != nil {
		return nil, err
	}
	if err := s.engine.WaitDurable(ctx, last); err != nil {
		return nil, err
	}
	resp := &pb.LeaseHistoryResponse{}
	if resp.Problem, err = s.history.Await(ctx, last); err != nil {
		return nil, err
	}
	var page history.Page
	if err := s.looks.In(ctx, c.User, func() (err error) { // it reads files into memory
		page, err = s.history.Find(q)
		return err
	}); err != nil {
		return nil, err
	}
	resp.KeptFromUnixMs = page.From
	if page.Next != (history.Place{}) {
		resp.NextCursor = placeText(page.Next)
	}
	if r.GetCursor() == "" {
		page.Spans = append(now, page.Spans...)
	}
	s.engine.Look(func(t *namespace.Tree) {
		for i := range page.Spans {
			span := &page.Spans[i]
			if span.Path != "" && !c.Super && !c.Owns(span.Holder.User) && !namespace.MayList(t, c, span.Dir) && !(q.Path == span.Path && t.MaySearch(c, span.Dir)) {
				if q.Path != "" && span.Inode != q.Inode {
					continue // it was found by a path that the caller need not know
				}
				span.Path = ""
			}
			resp.Spans = append(resp.Spans, spanOf(span))
		}
	})
	return resp, s.role.Active()
}

func placeText(p history.Place) string { return fmt.Sprintf("%d.%d", p.TxID, p.N) }

// heldNow fills in what is looked for, and returns what is held now of it: as much as a list of
// leases shows.
func (s *granted) heldNow(tx *engine.Tx, c *namespace.Call, r *pb.LeaseHistoryRequest, q *history.Query) (now []history.Span, err error) {
	left := maxListedFiles
	file := func(id namespace.InodeID) {
		if f, open := tx.Tree.OpenFile(id); open && left > 0 {
			h := f.Holder
			span := history.Span{Inode: id, Epoch: f.Epoch, Holder: &h, From: f.Since}
			span.Path, _ = tx.Tree.Path(id)
			if a, err := tx.Tree.Stat(nil, namespace.Inode(id)); err == nil {
				span.Dir = a.Parent
			}
			now = append(now, span)
			left -= listedCost(span.Path)
		}
	}
	lease := func(id namespace.LeaseID) {
		if l, lives := tx.Tree.Lease(c, id); lives {
			h := namespace.Holder{User: l.Owner.User, Client: l.Owner.Client, Host: l.Owner.Host}
			now = append(now, history.Span{Lease: l.ID, Name: l.Name, Holder: &h, From: l.Since})
		}
	}
	path, holder, name := r.GetPath(), r.GetHolder(), r.GetLease()
	switch {
	case path != "" && holder == "" && name == "":
		if err := fspath.Check(path); err != nil {
			return nil, err
		}
		q.Path = path
		a, err := tx.Tree.Stat(c, namespace.Follow(path))
		if errors.Is(err, fserror.NotFound) {
			return nil, nil // it was perhaps there once
		} else if err != nil {
			return nil, err
		}
		q.Inode = a.ID
		file(a.ID)
		lease(a.Lease)
	case holder != "" && path == "" && name == "":
		f := leasemanager.Filter{Limit: 100, MaxFiles: maxLeaseFiles}
		f.Client, f.Match = holderFilter(holder)
		q.Holder = func(h *namespace.Holder) bool {
			return f.Client == h.Client && f.Client != "" || f.Match != nil && f.Match(leases.HolderOf(*h))
		}
		infos, _ := s.leases.List(f)
		for _, in := range infos {
			if in.Kind == leasemanager.KindGranted {
				lease(namespace.LeaseID(in.ID))
			}
			for _, ref := range in.Refs[:min(len(in.Refs), max(0, maxLeaseFiles-len(now)))] {
				file(namespace.InodeID(ref.Inode))
			}
		}
	case name != "" && path == "" && holder == "":
		if id, err := strconv.ParseUint(name, 16, 64); err == nil {
			q.Lease = namespace.LeaseID(id)
		} else {
			q.Name = name
			q.Lease = tx.Tree.NamedLease(c, c.User, name)
		}
		lease(q.Lease)
	default:
		return nil, fserror.New(fserror.InvalidArgument, "", "", "name one of a path, a holder and a granted lease")
	}
	return now, nil
}

// holderFilter finds a client name, or a session by what clients see of it.
func holderFilter(holder string) (client string, match func(leasemanager.Holder) bool) {
	raw, err := hex.DecodeString(strings.ToLower(holder))
	if err != nil || len(raw) != len(leasemanager.SessionID{}) {
		return holder, nil
	}
	return "", func(h leasemanager.Holder) bool { return bytes.Equal(pb.SessionName(h.Session[:]), raw) }
}

// spanOf is the wire form of a span.
func spanOf(s *history.Span) *pb.LeaseSpan {
	out := &pb.LeaseSpan{Txid: s.TxID, FromUnixMs: s.From, ToUnixMs: s.To, Reason: s.Why, Name: s.Name, Path: s.Path, Inode: uint64(s.Inode), Epoch: s.Epoch}
	if s.Gap {
		return &pb.LeaseSpan{Txid: s.TxID, FromUnixMs: s.From, ToUnixMs: s.To}
	}
	out.Holder = holderInfo(leases.HolderOf(*s.Holder), 0, 0)
	if s.Lease != 0 {
		out.Lease, out.Holder.Session = leases.Name(uint64(s.Lease)), nil
	}
	if s.By != nil {
		out.By = &pb.HolderInfo{User: s.By.User, Client: s.By.Client, Host: s.By.Host}
	}
	return out
}
