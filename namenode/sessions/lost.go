package sessions

import (
	"errors"
	"fmt"
	"sync"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// maxLost bounds how many lost files are remembered.
const maxLost = 10_000

// lostTable remembers how writers lost their files, so that one that comes late
// can be told who has it or had it, also when that one is done or the inode is
// gone. It is a courtesy, not state: bounded, and empty after a restart.
type lostTable struct {
	mu    sync.Mutex
	how   map[lostKey]lostHow
	order []lostKey
}

type lostKey struct {
	inode namespace.InodeID
	epoch uint64 // the one that was lost
}

type lostHow struct {
	reason string
	by     *namespace.Holder
}

func (t *lostTable) add(f namespace.ClosedFile, by *namespace.Holder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.how == nil {
		t.how = map[lostKey]lostHow{}
	}
	if len(t.order) == maxLost {
		delete(t.how, t.order[0])
		t.order = t.order[1:]
	}
	k := lostKey{f.Inode, f.Epoch}
	t.how[k] = lostHow{f.Reason, by}
	t.order = append(t.order, k)
}

// Explain adds to a writer's LEASE_LOST what is remembered of the loss.
func (t *Table) Explain(err error, w namespace.Writer) error {
	var fe *fserror.Error
	if !errors.As(err, &fe) || !errors.Is(err, fserror.LeaseLost) {
		return err
	}
	t.lost.mu.Lock()
	how, ok := t.lost.how[lostKey{w.Inode, w.Epoch}]
	t.lost.mu.Unlock()
	if !ok {
		return err
	}
	named := *fe
	named.Reason = how.reason
	named.Message = "lease lost: the file was " + how.reason
	if how.by != nil {
		named.Holder = &fserror.Holder{User: how.by.User, Client: how.by.Client, Host: how.by.Host, PID: how.by.PID}
		named.Message += fmt.Sprintf(" by %s (host %s, pid %d)", how.by.Client, how.by.Host, how.by.PID)
	}
	named.Message += "; nothing written since counts, open it again to continue"
	return &named
}
