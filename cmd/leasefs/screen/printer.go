package screen

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/filemode"
)

// Printer prints what people and scripts see of a run.
type Printer struct {
	Stdout *os.File
	Stderr *os.File
	Out    *bufio.Writer // over Stdout; flushed at the end and where somebody waits for it
	JSON   bool          // --json, known before the command line is fully parsed
	Quiet  bool          // --quiet
}

// New prints to two streams, as text and with summaries.
func New(stdout, stderr *os.File) Printer {
	return Printer{Stdout: stdout, Stderr: stderr, Out: bufio.NewWriterSize(stdout, 64<<10)}
}

// Printf writes to standard output; errors show when it is flushed.
func (p *Printer) Printf(format string, args ...any) { fmt.Fprintf(p.Out, format, args...) }

// PrintJSON writes one object on one line.
func (p *Printer) PrintJSON(v any) error {
	enc := json.NewEncoder(p.Out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return OutputError(err)
	}
	return nil
}

// Result prints what a command has done: an object under --json, else a line.
func (p *Printer) Result(object map[string]any, format string, args ...any) error {
	if p.JSON {
		return p.PrintJSON(object)
	}
	p.Printf(format, args...)
	return nil
}

// Summary is Result for a line that nobody needs: --quiet leaves it out.
func (p *Printer) Summary(object map[string]any, format string, args ...any) error {
	if p.Quiet && !p.JSON {
		return nil
	}
	return p.Result(object, format, args...)
}

// Flush hands what was printed to whoever waits for it.
func (p *Printer) Flush() error {
	if err := p.Out.Flush(); err != nil {
		return OutputError(err)
	}
	return nil
}

// Table returns a writer that aligns columns separated by tabs; flush it.
func (p *Printer) Table() *Table { return &Table{w: tabwriter.NewWriter(p.Out, 0, 8, 2, ' ', 0)} }

// Table aligns columns. A long one is aligned in parts, so that it is neither
// held in memory as a whole nor shown only at its end.
type Table struct {
	w    *tabwriter.Writer
	rows int
}

// tableRows are aligned together.
const tableRows = 1000

// Write takes a row, or a part of one.
func (t *Table) Write(p []byte) (int, error) {
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
func (t *Table) Flush() error { return t.w.Flush() }

// Name is a name as it is printed: exact in a pipe, quoted on a terminal if
// it holds what a terminal would act on.
func (p *Printer) Name(s string) string {
	if IsTerminal(p.Stdout) {
		return QuoteName(s)
	}
	return s
}

// QuoteName quotes a name that holds unprintable characters.
func QuoteName(s string) string {
	for _, r := range s {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// Marks are what follows a name in a listing: where a link leads, who has it open.
func (p *Printer) Marks(i *client.FileInfo) (text string) {
	if i.LinkTarget != "" {
		text = " -> " + p.Name(i.LinkTarget)
	}
	if i.Open != nil {
		text += "  [open: " + QuoteName(i.Open.Holder.Client) + "]"
	}
	return text
}

// OrNull is what a figure or text is under --json: null where nothing applies,
// which its zero value stands for.
func OrNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// Info is a file, directory or link under --json. What does not apply is null.
type Info struct {
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
	ACL         *string `json:"acl"`   // which ACLs it has: access, default or access,default
}

// TimeJSON is how times are written under --json: RFC 3339 in UTC, with milliseconds.
const TimeJSON = "2006-01-02T15:04:05.000Z07:00"

// ToJSON is what is printed of a file, directory or link under --json.
func ToJSON(i *client.FileInfo) Info {
	j := Info{
		Path: i.Path, Type: TypeName(i.Mode()), Length: i.Length, Mode: filemode.Format(i.Mode()), User: i.User, Group: i.Group,
		MTime: i.ModTime().UTC().Format(TimeJSON), Inode: i.Inode, Open: i.Open != nil, TxID: OrNull(i.TxID), ACL: OrNull(ACLs(i)),
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

// TypeName is "file", "directory" or "symlink".
func TypeName(m fs.FileMode) string {
	switch m.Type() {
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symlink"
	}
	return "file"
}

// ACLMark is what ls -l puts behind the mode of what has an ACL.
func ACLMark(i *client.FileInfo) string {
	if i.HasACL || i.HasDefault {
		return "+"
	}
	return ""
}

// ACLs says which ACLs something has; empty: none.
func ACLs(i *client.FileInfo) string {
	switch {
	case i.HasACL && i.HasDefault:
		return "access,default"
	case i.HasACL:
		return "access"
	case i.HasDefault:
		return "default"
	}
	return ""
}

// ModeString is a mode as ls -l shows it.
func ModeString(m fs.FileMode) string {
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

// Size is a number of bytes for people: exact, or in powers of 1,024.
func Size(n int64, human bool) string {
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

// ShortTime is a time as ls -l shows it.
func ShortTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// Plural is "1 file", "2 files".
func Plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatUint(n, 10) + " " + many
}

// OrDash is s, or "-" if it is empty.
func OrDash(s string) string {
	if strings.TrimSpace(s) == "" {
		return "-"
	}
	return s
}

// Note tells a person something on standard error that is no failure.
func (p *Printer) Note(format string, args ...any) {
	if !p.JSON {
		fmt.Fprintf(p.Stderr, "leasefs: "+format+"\n", args...)
	}
}

// IsTerminal says whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
