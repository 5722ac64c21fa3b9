package namespace

import "slices"

// link makes the tables of what was read, and checks that every entry is in a
// directory and that every directory hangs from one without a parent.
func (r *imageReader) link() error {
	t := r.t
	nums := make([]uint64, 0, len(r.pages))
	for num := range r.pages {
		nums = append(nums, num)
	}
	slices.Sort(nums)
	for _, num := range nums {
		t.pages.ReplaceOrInsert(pageItem{num: num, gen: t.gen, page: r.pages[num]})
	}
	for _, d := range r.dirs {
		n := t.get(d.id)
		if n == nil || n.typ != TypeDir {
			return r.wrong("inode %d has entries but is no directory", d.id)
		}
		// The tree is not in use yet: this is where its inodes are made.
		if n.ext == nil {
			n.ext = new(ext)
		}
		n.ext.n = d.n
	}
	if err := r.checkHangs(); err != nil {
		return err
	}
	if !slices.IsSortedFunc(r.keys, compareKeys) {
		slices.SortFunc(r.keys, compareKeys)
	}
	for i, k := range r.keys {
		if i > 0 && r.keys[i-1] == k {
			return r.wrong("block %d.%d is in two places", k.Term, k.Seq)
		}
		t.blocks.ReplaceOrInsert(k)
	}
	slices.Sort(r.open)
	for _, id := range r.open {
		if !t.reachable(t.get(id), nil) {
			return r.wrong("file %d is open but deleted", id)
		}
		t.open.ReplaceOrInsert(id)
	}
	return nil
}

// checkHangs returns an error if going up from a directory leads nowhere or in
// a circle.
func (r *imageReader) checkHangs() error {
	const onWay, good = 1, 2
	state := make(map[InodeID]uint8, len(r.dirs))
	var way []InodeID
	for _, d := range r.dirs {
		way = way[:0]
		for id := d.id; id != 0 && state[id] != good; {
			n := r.t.get(id)
			if n == nil || n.typ != TypeDir || state[id] == onWay {
				return r.wrong("directory %d hangs from nothing", d.id)
			}
			state[id] = onWay
			way = append(way, id)
			id = n.parent
		}
		for _, id := range way {
			state[id] = good
		}
	}
	return nil
}
