package local

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/internal/vfs"
)

const (
	reachedName  = "journal.reached"
	reachedMagic = "LEASEFSR"
	reachedSize  = len(reachedMagic) + 8 + 8 + 4
)

// reached says how far the journal had come when it was closed cleanly: the last
// record and the term. It stays true for ever, as nothing durable goes away at
// the journal's end, so that it need not be removed or renewed before more is
// written. Without it a last segment that is missing, or was shortened at the
// end of a batch, could not be told from one that was never written.
type reached struct{ txid, term uint64 }

func (r reached) encode() []byte {
	b := append(make([]byte, 0, reachedSize), reachedMagic...)
	b = le.AppendUint64(b, r.txid)
	b = le.AppendUint64(b, r.term)
	return le.AppendUint32(b, group.Checksum(b))
}

// writeReached replaces the file.
func writeReached(fsys vfs.FS, dir string, r reached) error {
	return vfs.WriteFile(fsys, filepath.Join(dir, reachedName), r.encode())
}

// checkReached refuses a journal that ends before where it is known to have been.
func (w *walk) checkReached(found walked) error {
	name := filepath.Join(w.dir, reachedName)
	f, err := w.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	size, err := f.Size()
	if err != nil {
		return err
	}
	buf := make([]byte, min(size, int64(reachedSize)))
	if err := readFull(f, buf, 0); err != nil {
		return err
	}
	body := max(reachedSize-4, 0)
	if size != int64(reachedSize) || string(buf[:len(reachedMagic)]) != reachedMagic || le.Uint32(buf[body:]) != group.Checksum(buf[:body]) {
		return &journal.DamageError{Segment: name, TxID: found.next.first, Detail: "its checksum does not fit", Remedy: remedyReached}
	}
	r := reached{txid: le.Uint64(buf[len(reachedMagic):]), term: le.Uint64(buf[len(reachedMagic)+8:])}
	last := found.next.first - 1
	// A last segment without a batch does not tell the term.
	if len(w.segs) > 0 && last >= r.txid && (found.next.term >= r.term || found.next.term == 0) {
		return nil
	}
	damage := &journal.DamageError{
		Segment: w.dir, TxID: found.next.first,
		Detail: fmt.Sprintf("the journal ends at record %d of term %d, and had come to record %d of term %d when it was closed", last, found.next.term, r.txid, r.term),
		Remedy: remedyEnd,
	}
	if found.torn != nil {
		damage.Segment, damage.Offset = found.torn.Segment, found.torn.Offset
	} else if n := len(w.segs); n > 0 {
		damage.Segment, damage.Offset = filepath.Join(w.dir, w.segs[n-1].name()), found.end
	}
	return damage
}
