package sessions

import (
	"slices"
	"sync"
)

// maxKeepers is how many streams are told at once of the end of one lease. Others
// learn it when they name it next.
const maxKeepers = 16

// keeperTable knows which streams keep a granted lease alive and want to be told
// at once of its end. It has entries only for leases that live.
type keeperTable struct {
	mu     sync.Mutex
	leases map[uint64][]*Keeper
}

// Keeper is what one stream of keep-alives has to be told.
type Keeper struct {
	table *keeperTable
	wake  chan struct{}

	// Guarded by keeperTable.mu.
	named map[uint64]struct{} // the leases that it is in the table for
	gone  []Ended             // to be told
	txid  uint64              // of the last record that ended one of them
}

// Ended is a lease that has ended.
type Ended struct {
	Lease  uint64
	Reason string
}

// Keeper returns one that follows no lease yet. Leave is to be called.
func (t *Table) Keeper() *Keeper {
	return &Keeper{table: &t.keepers, wake: make(chan struct{}, 1), named: map[uint64]struct{}{}}
}

// Wake has an element when there is something to tell.
func (k *Keeper) Wake() <-chan struct{} { return k.wake }

// Follow has the keeper told of the end of a lease that lives. The caller holds
// the namespace lock, so that its end cannot come in between.
func (k *Keeper) Follow(id uint64) {
	t := k.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := k.named[id]; known || len(t.leases[id]) >= maxKeepers {
		return
	}
	if t.leases == nil {
		t.leases = map[uint64][]*Keeper{}
	}
	k.named[id] = struct{}{}
	t.leases[id] = append(t.leases[id], k)
}

// ended tells the keepers of a lease that the record txid has ended it.
func (t *keeperTable) ended(id uint64, reason string, txid uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.leases[id] {
		delete(k.named, id)
		k.gone = append(k.gone, Ended{id, reason})
		k.txid = txid
		wake(k.wake)
	}
	delete(t.leases, id)
}

// Take returns what the keeper has to be told, at most n leases, and the record
// that has to be durable first.
func (k *Keeper) Take(n int) (gone []Ended, txid uint64) {
	k.table.mu.Lock()
	defer k.table.mu.Unlock()
	n = min(n, len(k.gone))
	gone, k.gone = k.gone[:n:n], k.gone[n:]
	if len(k.gone) == 0 {
		k.gone = nil
	}
	return gone, k.txid
}

// Leave forgets the keeper.
func (k *Keeper) Leave() {
	t := k.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range k.named {
		rest := slices.DeleteFunc(t.leases[id], func(o *Keeper) bool { return o == k })
		if t.leases[id] = rest; len(rest) == 0 {
			delete(t.leases, id)
		}
	}
	k.named = nil
}
