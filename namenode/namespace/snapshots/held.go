package snapshots

import (
	"cmp"

	"github.com/leasefs/leasefs/namenode/namespace/content"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Held is a block that only snapshots have.
type Held struct {
	By    ID             // the newest of them; it may be deleted
	Inode tables.InodeID // of the file
	content.Block
}

// Number is the number of the file in the snapshot.
func (h Held) Number() tables.InodeID { return h.By.Number(h.Inode) }

// sum is how much is held by a snapshot, which may be deleted; 0: by all.
type sum struct {
	by            ID
	blocks, bytes int64
}

// holdings are the blocks that only snapshots have.
type holdings struct {
	byHolder tables.Set[Held]
	byFile   tables.Set[Held]
	sums     tables.Set[sum]
}

func newHoldings() holdings {
	return holdings{
		byHolder: tables.NewSet(func(a, b Held) bool {
			return cmp.Or(cmp.Compare(a.By, b.By), cmp.Compare(a.Inode, b.Inode), tables.CompareKeys(a.Key, b.Key)) < 0
		}),
		byFile: tables.NewSet(func(a, b Held) bool {
			return cmp.Or(cmp.Compare(a.Inode, b.Inode), tables.CompareKeys(a.Key, b.Key)) < 0
		}),
		sums: tables.NewSet(func(a, b sum) bool { return a.by < b.by }),
	}
}

func (s *holdings) clone() holdings {
	return holdings{s.byHolder.Clone(), s.byFile.Clone(), s.sums.Clone()}
}

func (s *holdings) add(h Held) {
	s.byHolder.ReplaceOrInsert(h)
	s.byFile.ReplaceOrInsert(h)
	s.count(h, 1)
}

func (s *holdings) remove(h Held) {
	s.byHolder.Delete(h)
	s.byFile.Delete(h)
	s.count(h, -1)
}

// count adds to the sums, or takes from them (a sign of -1).
func (s *holdings) count(h Held, sign int64) {
	for _, by := range [2]ID{0, h.By} {
		of := s.sum(by)
		if of = (sum{by, of.blocks + sign, of.bytes + sign*int64(h.Stored)}); of.blocks == 0 {
			s.sums.Delete(of)
		} else {
			s.sums.ReplaceOrInsert(of)
		}
	}
}

func (s *holdings) sum(by ID) sum {
	of, _ := s.sums.Get(sum{by: by})
	return of
}

// first is the first block that is held by a snapshot of a number, or a greater one.
func (s *holdings) first(by ID) (h Held, is bool) {
	s.byHolder.From(Held{By: by}, func(first Held) bool {
		h, is = first, true
		return false
	})
	return h, is
}
