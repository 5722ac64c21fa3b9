package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/runner"
)

// printer prints what people and scripts see of a run.
type printer struct {
	stdout *os.File
	stderr *os.File
	out    *bufio.Writer // over stdout; flushed at the end and where somebody waits for it
	json   bool          // --json, known before the command line is fully parsed
}

// printf writes to standard output; errors show when it is flushed.
func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

// printJSON writes one object on one line.
func (p *printer) printJSON(v any) error {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return outputError(err)
	}
	return nil
}

// result prints what a command has done: an object under --json, else a line.
func (p *printer) result(object map[string]any, format string, args ...any) error {
	if p.json {
		return p.printJSON(object)
	}
	p.printf(format, args...)
	return nil
}

// flush hands what was printed to whoever waits for it.
func (p *printer) flush() error {
	if err := p.out.Flush(); err != nil {
		return outputError(err)
	}
	return nil
}

// readerPause is how often a command that follows something asks whether anybody
// still reads what it prints.
const readerPause = 500 * time.Millisecond

// whileRead makes f end within readerPause of the last reader of standard output,
// without a word and with the exit code of SIGPIPE. That signal itself comes only
// with the next line, for which f may wait for hours.
func whileRead(f func(*invocation) error) func(*invocation) error {
	return func(e *invocation) error {
		outer := e.ctx
		ctx, cancel := context.WithCancelCause(outer)
		defer cancel(nil)
		e.ctx = ctx
		defer func() { e.ctx = outer }()
		alone := make(chan struct{})
		go func() {
			tick := time.NewTicker(readerPause)
			defer tick.Stop()
			for ctx.Err() == nil && hasReader(e.stdout) {
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
			if ctx.Err() == nil {
				close(alone)
				cancel(nil)
			}
		}()
		err := f(e)
		select {
		case <-alone:
			return runner.Exit(128 + int(syscall.SIGPIPE))
		default:
			return err
		}
	}
}

// hasReader says whether what is written to f can be read; a file always can.
func hasReader(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd())}} //nolint:gosec // a descriptor fits
	_, err := unix.Poll(fds, 0)
	return err != nil || fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) == 0
}

// table returns a writer that aligns columns separated by tabs; flush it.
func (p *printer) table() *table { return &table{w: tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)} }

// table aligns columns. A long one is aligned in parts, so that it is neither
// held in memory as a whole nor shown only at its end.
type table struct {
	w    *tabwriter.Writer
	rows int
}

// tableRows are aligned together.
const tableRows = 1000

// Write takes a row, or a part of one.
func (t *table) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	if err != nil || len(p) == 0 || p[len(p)-1] != '\n' {
		return n, err
	}
	if t.rows++; t.rows%tableRows == 0 {
		err = t.w.Flush()
	}
	return n, err
}

// Flush writes what is not aligned yet.
func (t *table) Flush() error { return t.w.Flush() }

// name is a name as it is printed: exact in a pipe, quoted on a terminal if
// it holds what a terminal would act on.
func (p *printer) name(s string) string {
	if isTerminal(p.stdout) {
		return quoteName(s)
	}
	return s
}

// quoteName quotes a name that holds unprintable characters.
func quoteName(s string) string {
	for _, r := range s {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// marks are what follows a name in a listing: where a link leads, who has it open.
func (p *printer) marks(i *client.FileInfo) (text string) {
	if i.LinkTarget != "" {
		text = " -> " + p.name(i.LinkTarget)
	}
	if i.Open != nil {
		text += "  [open: " + quoteName(i.Open.Holder.Client) + "]"
	}
	return text
}

// orNull is what a figure or text is under --json: null where nothing applies,
// which its zero value stands for.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// infoJSON is a file, directory or link under --json. What does not apply is null.
type infoJSON struct {
	Path        string  `json:"path"`
	Type        string  `json:"type"`
	Length      int64   `json:"length"`
	Mode        string  `json:"mode"` // octal
	User        string  `json:"user"`
	Group       string  `json:"group"`
	MTime       string  `json:"mtime"` // RFC 3339, UTC, milliseconds
	Inode       uint64  `json:"inode"`
	Open        bool    `json:"open"`
	Holder      *string `json:"holder"`
	Epoch       *uint64 `json:"epoch"`
	LeaseIdleMS *int64  `json:"lease_idle_ms"`
	LinkTarget  *string `json:"link_target"`
	TxID        *uint64 `json:"txid"`  // all changes up to it are in this answer
	Lease       *string `json:"lease"` // the granted lease that it is attached to
}

const timeJSON = "2006-01-02T15:04:05.000Z07:00"

func toJSON(i *client.FileInfo) infoJSON {
	j := infoJSON{
		Path: i.Path, Type: typeName(i.Mode()), Length: i.Length, Mode: octal(i.Mode()), User: i.User, Group: i.Group,
		MTime: i.ModTime().UTC().Format(timeJSON), Inode: i.Inode, Open: i.Open != nil, TxID: orNull(i.TxID),
	}
	if o := i.Open; o != nil {
		idle := o.Holder.Idle.Milliseconds()
		j.Holder, j.Epoch, j.LeaseIdleMS = &o.Holder.Client, &o.Epoch, &idle
	}
	if i.Mode().Type() == fs.ModeSymlink {
		j.LinkTarget = &i.LinkTarget
	}
	if i.Lease != 0 {
		id := i.Lease.String()
		j.Lease = &id
	}
	return j
}

func typeName(m fs.FileMode) string {
	switch m.Type() {
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symlink"
	}
	return "file"
}

// octal is a mode as chmod takes it.
func octal(m fs.FileMode) string {
	n := uint32(m.Perm())
	if m&fs.ModeSticky != 0 {
		n |= 0o1000
	}
	return fmt.Sprintf("%04o", n)
}

// modeString is a mode as ls -l shows it.
func modeString(m fs.FileMode) string {
	b := []byte("-" + m.Perm().String()[1:])
	switch m.Type() {
	case fs.ModeDir:
		b[0] = 'd'
	case fs.ModeSymlink:
		b[0] = 'l'
	}
	if m&fs.ModeSticky != 0 {
		if b[9] == 'x' {
			b[9] = 't'
		} else {
			b[9] = 'T'
		}
	}
	return string(b)
}

// size is a number of bytes for people: exact, or in powers of 1,024.
func size(n int64, human bool) string {
	if !human || n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	f, unit := float64(n), -1
	for f >= 1024 && unit < 5 {
		f /= 1024
		unit++
	}
	format := "%.1f%c"
	if f >= 10 {
		format = "%.0f%c"
	}
	return fmt.Sprintf(format, f, "KMGTPE"[unit])
}

// shortTime is a time as ls -l shows it.
func shortTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// plural is "1 file", "2 files".
func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + many
}

// orDash is s, or "-" if it is empty.
func orDash(s string) string {
	if strings.TrimSpace(s) == "" {
		return "-"
	}
	return s
}

// note tells a person something on standard error that is no failure.
func (p *printer) note(format string, args ...any) {
	if !p.json {
		fmt.Fprintf(p.stderr, "leasefs: "+format+"\n", args...)
	}
}
