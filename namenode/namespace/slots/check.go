package slots

import "github.com/leasefs/leasefs/namenode/namespace/tables"

// Hanging returns the first of some inodes from which going up by parents leads to what is
// not there or is no directory, or in a circle, and true; false if all ways end at an
// inode without a parent. dir is the Type of directories. The inodes of a whole tree are
// themselves directories; those of a part may be of any type, and what is above them missing.
func (t *Table[X]) Hanging(ids []tables.InodeID, dir uint8, part bool) (tables.InodeID, bool) {
	const onWay, good = 1, 2
	state := make(map[tables.InodeID]uint8, len(ids))
	var way []tables.InodeID
	for _, first := range ids {
		way = way[:0]
		for id := first; id != 0; {
			n, _ := t.Get(id)
			if n == nil && part {
				break
			}
			if n == nil || n.Type != dir && !(part && id == first) || state[id] == onWay {
				return first, true
			}
			if state[id] == good {
				break
			}
			state[id] = onWay
			way = append(way, id)
			id = n.Parent
		}
		for _, id := range way {
			state[id] = good
		}
	}
	return 0, false
}

// Check tells of entries that are not there, out of order or not to be found, and of
// wrong counts. It returns how many entries each directory has.
func (t *Table[X]) Check(problem tables.Problem) map[tables.InodeID]int64 {
	in := make(map[tables.InodeID]int64)
	nodes, entries := 0, 0
	t.Each(0, func(id tables.InodeID, n *Node, _ *X) bool {
		nodes++
		if n.Parent != 0 {
			if dir, name := t.nameOf(id); t.Find(dir, name) != id {
				problem("inode %d is not the entry %q of its directory %d", id, name, dir)
			}
		}
		return true
	})
	last := key{}
	t.Ascend(0, "", func(id tables.InodeID) bool {
		entries++
		n, x := t.Get(id)
		if n == nil {
			problem("an entry is the inode %d, which is not there", id)
			return true
		}
		in[n.Parent]++
		if last.dir != 0 && t.compare(&last, id) >= 0 {
			problem("entry %d of directory %d is out of order", id, n.Parent)
		}
		last = t.keyOf(n, x)
		return true
	})
	if nodes != t.nodes || entries != t.entries {
		problem("there are %d inodes and %d entries, but %d and %d were counted", nodes, entries, t.nodes, t.entries)
	}
	return in
}
