package fuse

import (
	"syscall"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// phase is where a hold stands.
type phase uint8

const (
	// free: this mount may not write. If it held the file before, length and left
	// say as what it left it.
	free phase = iota
	// drafted: the file is not made yet, and what is written goes into the draft.
	drafted
	// settling: the draft becomes a file. Who wants to see it waits for settled.
	settling
	// unmade: the draft could not become a file. What was written is nowhere.
	unmade
	// held: the Writer has the lease.
	held
	// ending: this mount closes the Writer, or replaces it, so that its context ends
	// does not mean that the lease was lost.
	ending
)

// String is the phase's name.
func (p phase) String() string {
	return [...]string{"free", "drafted", "settling", "unmade", "held", "ending"}[p]
}

// hold is what a mount has of the right to write a file:
//
//	free ──draft*──▶ drafted ──settle──▶ settling ──made──▶ held
//	                                     settling ──stored──▶ free
//	                                     settling ──failed*──▶ free
//	                                     settling ──vanished*──▶ unmade
//	free, unmade ──begin*──▶ held ──end──▶ ending ──closed──▶ free
//	free, unmade ──resume──▶ held          ending ──resume──▶ held
//	                                       ending ──kept──▶ held
//	free, held, ending ──lost*──▶ free
//
// A handle has the generation in which it was opened. What is marked with * begins a
// new one, and handles of older ones get ESTALE. Whoever begins resumes if the file is
// as it was left, and so does another Writer in the place of one that ends. What is not
// drawn does not happen: moves is the drawing, and move the only place where phase and
// generation change. All methods are called under the file's mu.
type hold struct {
	phase   phase
	gen     uint64
	trace   func(move string)
	writer  *client.Writer  // while held or ending
	draft   *lowlevel.Draft // while drafted or settling
	settled chan struct{}   // while settling
	// length and left are length and modification time of the file when it became
	// free; left is zero if only the length is compared, as after a cut by path.
	length int64
	left   time.Time
	// mtime is of what was written and is not synced: writes counts the writes, and
	// synced how many of them were made durable by a sync.
	mtime          time.Time
	writes, synced uint64
	// why the draft of generation vanished could not be made.
	vanished uint64
	why      syscall.Errno
}

// unknown is a modification time that no file has: whether one is as it was left is not known.
var unknown = time.UnixMilli(1)

// moves is the drawing of a hold in a table: which event leads from which phase to which,
// and whether a new generation begins.
var moves = []struct {
	from  phase
	by    string
	to    phase
	renew bool
}{
	{free, "draft", drafted, true},
	{drafted, "settle", settling, false},
	{settling, "made", held, false},
	{settling, "stored", free, false},
	{settling, "failed", free, true},
	{settling, "vanished", unmade, true},
	{free, "begin", held, true},
	{unmade, "begin", held, true},
	{free, "resume", held, false},
	{unmade, "resume", held, false},
	{ending, "resume", held, false},
	{held, "end", ending, false},
	{ending, "closed", free, false},
	{ending, "kept", held, false},
	{free, "lost", free, true},
	{held, "lost", free, true},
	{ending, "lost", free, true},
}

// move changes the phase, and perhaps the generation.
func (h *hold) move(by string) {
	name := h.phase.String() + " ──" + by
	for _, m := range moves {
		if m.from == h.phase && m.by == by {
			h.phase = m.to
			if m.renew {
				name += "*"
				h.gen++
			}
			name += "──▶ " + m.to.String()
			break
		}
	}
	if h.trace != nil {
		h.trace(name)
	}
}

// begun notes a Writer. It continues the hold of before if the file is the same.
func (h *hold) begun(w *client.Writer, same bool) {
	h.writer = w
	h.synced, h.mtime = h.writes, time.Time{}
	if same {
		h.move("resume")
	} else {
		h.move("begin")
	}
}

// drafting notes that the file is a draft.
func (h *hold) drafting(d *lowlevel.Draft) {
	h.draft = d
	h.move("draft")
}

// settle begins to make a file of the draft; nil if it is none, or that has begun.
func (h *hold) settle() *lowlevel.Draft {
	if h.phase != drafted {
		return nil
	}
	h.settled = make(chan struct{})
	h.move("settle")
	return h.draft
}

// made notes that the draft is a file open for write. Nothing of it is durable yet.
func (h *hold) made(w *client.Writer) {
	h.endDraft("made")
	h.writer, h.synced = w, 0
}

// draftClosed notes that the draft is a closed file, whose last change was then.
func (h *hold) draftClosed(left time.Time) {
	h.length, h.left, h.synced = h.draft.Length(), left, h.writes
	h.endDraft("stored")
}

// draftFailed notes that the draft is not going to be a file. Its closer gets the
// error; when others only wanted to see it, whoever syncs it has still to be told.
func (h *hold) draftFailed(why syscall.Errno, told bool) {
	h.vanished, h.why = h.gen, why
	if told {
		h.endDraft("failed")
	} else {
		h.endDraft("vanished")
	}
}

// stale is what handles of an earlier generation get: ESTALE, or that there was no room for the
// file if it was a draft that could not be made.
func (h *hold) stale(gen uint64) syscall.Errno {
	if gen == h.vanished && (h.why == syscall.EDQUOT || h.why == syscall.ENOSPC) {
		return h.why
	}
	return syscall.ESTALE
}

func (h *hold) endDraft(by string) {
	h.move(by)
	h.draft = nil
	close(h.settled)
	h.settled = nil
}

// startClosing begins to close or to replace the Writer.
func (h *hold) startClosing() { h.move("end") }

// kept notes that the Writer was not replaced after all.
func (h *hold) kept() { h.move("kept") }

// closed notes that the lease was given back at that modification time.
func (h *hold) closed(left time.Time) {
	h.length, h.left, h.writer = h.writer.Length(), left, nil
	h.move("closed")
}

// lost notes that the lease is gone, and returns the Writer that had it.
func (h *hold) lost() *client.Writer {
	w := h.writer
	h.writer = nil
	h.move("lost")
	return w
}

// hasLost tells whether the lease is gone without a doing of this mount.
func (h *hold) hasLost() bool { return h.phase == held && h.writer.Context().Err() != nil }

// wrote notes that something was written.
func (h *hold) wrote() {
	if now := time.Now().Truncate(time.Millisecond); now.After(h.mtime) {
		h.mtime = now
	}
	h.writes++
}

// touched notes a modification time that somebody set; zero: now.
func (h *hold) touched(t time.Time) {
	if h.writer == nil {
		h.left = t
	}
	if t.IsZero() {
		t = time.Now()
	}
	h.mtime = t.Truncate(time.Millisecond)
}

// unsynced is the time of what was written since the last sync; zero if nothing was.
func (h *hold) unsynced() time.Time {
	if h.writes == h.synced {
		return time.Time{}
	}
	return h.mtime
}
