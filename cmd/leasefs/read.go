package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
)

func catCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "cat",
		Usage:       "print files",
		UsageText:   "leasefs cat PATH...\n\nExample:\n  leasefs cat /logs/a /logs/b | sort",
		Description: "Prints files one after another, checksums verified. A file open for write is printed as far\nas it was flushed.",
		Action: p.connected(operands{min: 1, max: -1, names: "one path or more"}, func(e *invocation) error {
			return e.each(func(path string) error {
				return e.open(path, func(r *client.Reader) error { return e.copyOut(r) })
			})
		}),
	}
}

func headCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "head",
		Usage:       "print the beginning of a file",
		UsageText:   "leasefs head [-n N | -c N] PATH\n\nExample:\n  leasefs head -n 3 /logs/a",
		Description: "Prints the first N lines (10), or the first N bytes with -c.",
		Flags:       countFlags("first"),
		Action: reading(p, operands{min: 1, max: 1, names: "PATH"}, readCount, func(e *invocation, c count) error {
			return e.open(e.args[0], func(r *client.Reader) error {
				if c.inBytes {
					return e.copyOut(io.LimitReader(r, c.n))
				}
				return transfer.FirstLines(e.Out, r, c.n)
			})
		}),
	}
}

func tailCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "tail",
		Usage:     "print the end of a file, and what is flushed to it",
		UsageText: "leasefs tail [-f] [-n N | -c N] PATH\n\nExample:\n  leasefs tail -f -n 0 /logs/a",
		Description: "Prints the last N lines (10), or the last N bytes with -c. With -f it then prints what any\n" +
			"writer flushes to the file, over renames, until it is interrupted; with --until-closed, until\n" +
			"nobody has the file open for write. A file that was truncated is printed from its beginning. -F\n" +
			"follows the path: when its file is closed or removed, it continues with the one that is there then.",
		Flags: append(countFlags("last"),
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "continue with what is flushed"},
			&cli.BoolFlag{Name: "follow-name", Aliases: []string{"F"}, Usage: "-f of the path: wait for the file, and continue with one that takes its place"},
			&cli.BoolFlag{Name: "until-closed", Usage: "with -f: end when the file is closed"}),
		Action: reading(p, operands{min: 1, max: 1, names: "PATH"}, readCount, func(e *invocation, c count) error {
			t := &tailing{e, c}
			tail := func(*invocation) error { return e.open(e.args[0], t.tail) }
			switch {
			case e.flags.Bool("follow-name"):
				tail = whileRead(t.followName)
			case e.flags.Bool("follow"):
				tail = whileRead(tail)
			}
			return tail(e)
		}),
	}
}

func countFlags(which string) []cli.Flag {
	return []cli.Flag{
		&cli.Int64Flag{Name: "lines", Aliases: []string{"n"}, Usage: "the " + which + " `N` lines", DefaultText: "10"},
		&cli.StringFlag{Name: "bytes", Aliases: []string{"c"}, Usage: "the " + which + " `N` bytes; K, M, G: times 1,024 each"},
	}
}

// count is how many lines, or bytes.
type count struct {
	n       int64
	inBytes bool
}

// readCount reads -n and -c.
func readCount(e *invocation) (count, error) {
	if s := e.flags.String("bytes"); s != "" {
		if e.flags.IsSet("lines") {
			return count{}, argv.Usagef(e.op, "-n and -c exclude each other")
		}
		n, err := e.parseSize("-c", s)
		return count{n, true}, err
	}
	if e.flags.IsSet("lines") {
		return count{n: e.flags.Int64("lines")}, nil
	}
	return count{n: 10}, nil
}

// parseSize reads a number of bytes such as 4096, 64K or 1G.
func (c *commandLine) parseSize(flag, s string) (int64, error) { return argv.ParseSize(c.op, flag, s) }

// open runs f with a reader of path.
func (e *invocation) open(path string, f func(*client.Reader) error) error {
	r, err := e.fs.Open(e.ctx, path)
	if err != nil {
		return e.fail(err, path)
	}
	err = transfer.While(e.ctx, r, func() error { return f(r) })
	_ = r.Close() // only read
	return e.fail(err, path)
}

// copyOut prints r, and tells a failed read from a failed write.
func (e *invocation) copyOut(r io.Reader) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		if _, werr := e.Out.Write(buf[:n]); werr != nil {
			return screen.OutputError(werr)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := context.Cause(e.ctx); err != nil {
			return err
		}
	}
}

// tailing is a tail under way: what it prints of the next reader, the end or
// all, before it follows.
type tailing struct {
	*invocation
	count
}

func (t *tailing) tail(r *client.Reader) error {
	length := r.Length()
	pos := max(0, length-min(t.n, length))
	if !t.inBytes {
		var err error
		if pos, err = transfer.LastLines(r, length, t.n); err != nil {
			return err
		}
	}
	pos, err := t.printRange(r, pos, length)
	if err != nil || !t.flags.Bool("follow") && !t.flags.Bool("follow-name") {
		return err
	}
	return t.follow(r, pos)
}

// errMoved says that a path leads to another file, or to none.
var errMoved = errors.New("another file took its place")

// followName is tail of one file after the other that the path leads to, of those
// after the first from the beginning.
func (t *tailing) followName(*invocation) error {
	for {
		err := t.open(t.args[0], t.tail)
		switch {
		case errors.Is(err, errMoved):
		case fserror.KindOf(err) != fserror.NotFound || err == nil:
			return err
		default:
			if err := t.pause(closedPause); err != nil {
				return err
			}
		}
		t.n, t.inBytes = math.MaxInt64, true
	}
}

// moved returns errMoved if the path of r leads to another file now.
func (t *tailing) moved(r *client.Reader) error {
	if !t.flags.Bool("follow-name") {
		return nil
	}
	was, err := r.Stat()
	if err != nil {
		return err
	}
	is, err := t.fs.Stat(t.ctx, r.Path())
	if err == nil && is.Inode == was.Inode {
		return nil
	}
	if err != nil && fserror.KindOf(err) != fserror.NotFound {
		return err
	}
	return errMoved
}

// printRange prints the bytes from pos to end and returns where it came to.
func (e *invocation) printRange(r *client.Reader, pos, end int64) (int64, error) {
	if err := e.copyOut(io.NewSectionReader(r, pos, end-pos)); err != nil {
		return pos, err
	}
	return end, e.Flush()
}

// closedPause is how often a closed file is asked whether it grew.
const closedPause = time.Second

// follow prints what is flushed beyond pos.
func (t *tailing) follow(r *client.Reader, pos int64) error {
	cut := r.Cut()
	for {
		length, open, err := r.WaitBeyond(t.ctx, pos)
		if err != nil {
			return err
		}
		if r.Cut() != cut { // as of tail(1), all of it is new then
			fmt.Fprintln(t.Stderr, screen.OneLine("leasefs: "+t.op+" "+r.Path()+": file truncated"))
			pos, cut = 0, r.Cut()
		}
		if length > pos {
			pos, err = t.printRange(r, pos, length)
			if errors.Is(err, fserror.Truncated) {
				pos, err = 0, r.Refresh(t.ctx)
			}
			if err != nil {
				return err
			}
			continue
		}
		if open {
			continue
		}
		if t.flags.Bool("until-closed") {
			return nil
		}
		if err := t.moved(r); err != nil {
			return err
		}
		if err := t.pause(closedPause); err != nil {
			return err
		}
	}
}

// pause waits, or returns why the command ended.
func (e *invocation) pause(d time.Duration) error { return clock.Pause(e.ctx, d) }
