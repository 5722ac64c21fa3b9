package slots

import "github.com/leasefs/leasefs/namenode/namespace/tables"

const (
	batchSize = 512 // inodes that a Loader hands on together
	batches   = 4   // that may wait
)

// Loader fills a table with inodes in the order of an image: those that are no entries,
// then the entries of directories, in order. It does so in a goroutine of its own, so
// that the next inodes can be decoded meanwhile. The table is the Loader's until Finish,
// which must be called.
type Loader[X any] struct {
	t       *Table[X]
	batch   []loaded[X]
	full    chan []loaded[X]
	empty   chan []loaded[X]
	done    chan struct{}
	twice   tables.InodeID
	isTwice bool
}

type loaded[X any] struct {
	id tables.InodeID
	Node
	x *X
}

// Load returns a Loader. count is how many inodes the image says that it has, and next a
// number that none of them reaches: if most numbers have an inode, memory is allocated for
// whole pages.
func (t *Table[X]) Load(count, next uint64) *Loader[X] {
	if count > next/2 {
		t.first = pageSize
	}
	l := &Loader[X]{t: t, full: make(chan []loaded[X], batches), empty: make(chan []loaded[X], batches+2), done: make(chan struct{})}
	go l.run()
	return l
}

func (l *Loader[X]) run() {
	defer close(l.done)
	for b := range l.full {
		for i := range b {
			n := &b[i]
			switch {
			case l.isTwice:
			case !l.t.Put(n.id, &n.Node, n.x):
				l.twice, l.isTwice = n.id, true
			case n.Parent != 0:
				l.t.linkLast(n.id, &n.Node, n.x)
			}
		}
		clear(b)
		l.empty <- b[:0]
	}
}

// Add adds an inode.
func (l *Loader[X]) Add(id tables.InodeID, n *Node, x *X) {
	if l.batch == nil {
		select {
		case l.batch = <-l.empty:
		default:
			l.batch = make([]loaded[X], 0, batchSize)
		}
	}
	l.batch = append(l.batch, loaded[X]{id, *n, x})
	if len(l.batch) == batchSize {
		l.full <- l.batch
		l.batch = nil
	}
}

// Finish waits until all are in the table. If a number came twice it returns that and
// true, and the table is incomplete.
func (l *Loader[X]) Finish() (twice tables.InodeID, is bool) {
	if l.batch != nil {
		l.full <- l.batch
	}
	close(l.full)
	<-l.done
	l.t.first = firstNodes
	return l.twice, l.isTwice
}
