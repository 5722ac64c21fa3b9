package namespace

// OpReclaim frees up to Limit inodes of detached subtrees, or fewer if there are many snapshots.
type OpReclaim struct {
	unseen

	Limit uint32
}

func (op *OpReclaim) fields(c coder) { c.U32(&op.Limit) }

// The order depends on nothing but the state: the directory of the lowest number first,
// its entries by name; a directory below that has entries becomes a top of its
// own, so no depth is too much.
func (op *OpReclaim) apply(t applier) (Result, error) {
	for left := int64(op.Limit); left > 0; {
		id, ok := t.detached.Min()
		if !ok {
			break
		}
		top := t.get(id)
		var batch []*inode
		t.slots.Children(id, "", func(n *inode) bool {
			batch = append(batch, n)
			left -= 1 + int64(t.snaps.Work(n.Blocks()))
			return left > 0
		})
		living := top.Entries()
		for _, n := range batch {
			if !t.isDead(n) {
				living--
			}
			t.takeOut(n, ReasonDeleted)
		}
		if len(batch) > 0 && living+t.Grants.DeadIn(id) > 0 {
			top = top.Edit()
			top.OwnExt().N = living
			top.DropEmptyExt()
			t.put(top)
			continue
		}
		t.detached.Delete(id)
		t.free(top, "deleted")
		left--
	}
	return Result{}, nil
}
