package namespace

import (
	"slices"

	"github.com/leasefs/leasefs/namenode/namespace/levels"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// history is what records say of the namespace as a whole.
type history struct {
	txid       uint64
	time       int64 // Unix milliseconds, of the last record
	reigned    int64 // see Reigned
	reigns     tables.Reigns
	namespace  [16]byte
	superUser  string
	superGroup string
	safeMode   bool
	images     []OpImage // the last two published, older first
	at         levels.State
}

// Last returns number and time (Unix milliseconds) of the last record applied.
func (t *history) Last() (txid uint64, timeMS int64) { return t.txid, t.time }

// Reigned is how many milliseconds all reigns so far have lasted, each from its
// activation to its last record. By it results are forgotten and garbage ages:
// between reigns, where the journal's time follows some machine's time of day,
// it stands still.
func (t *history) Reigned() int64 { return t.reigned }

// Term is that of the last activation, 0 before the first.
func (t *history) Term() uint64 { return t.reigns.Term }

// Reigns returns the latest reigns, the oldest first; the last one is that of Term.
func (t *history) Reigns() []tables.Reign { return t.reigns.All() }

// NamespaceID is what the first activation set.
func (t *history) NamespaceID() [16]byte { return t.namespace }

// Superuser returns the superuser and the supergroup of the last activation.
func (t *history) Superuser() (user, group string) { return t.superUser, t.superGroup }

// Level is at which feature level the namespace is.
func (t *history) Level() levels.State { return t.at }

// SafeMode reports whether safe mode was entered by hand.
func (t *history) SafeMode() bool { return t.safeMode }

// Images returns the last two images published, the older first.
func (t *history) Images() []OpImage { return slices.Clone(t.images) }
