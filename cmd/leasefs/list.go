package main

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

func lsCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "ls",
		Usage:     "list directories",
		UsageText: "leasefs ls [-l] [-R] [-1] [--txid] [PATH...]\n\nExample:\n  leasefs ls -l /logs",
		Description: "Lists directories (/ if none is named) in the order of names, and files as themselves. With\n" +
			"-l: mode, user, group, length, time, name; a w after the mode marks a file open for write,\n" +
			"and its holder follows the name. A terminal shows the mark without -l too. With --txid the first\n" +
			"line is \"txid N\": leasefs watch --from N+1 tells all that the listing does not show.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "long", Aliases: []string{"l"}, Usage: "with attributes"},
			&cli.BoolFlag{Name: "recursive", Aliases: []string{"R"}, Usage: "directories below, too"},
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "names that begin with a dot, too (always so)"},
			&cli.BoolFlag{Name: "one", Aliases: []string{"1"}, Usage: "one name a line (always so)"},
			&cli.BoolFlag{Name: "human", Aliases: []string{"h"}, Usage: "lengths as 1.5K, 2.0M"},
			&cli.BoolFlag{Name: "txid", Usage: "print first up to which change all are in the listing"},
		},
		Action: p.connected(operands{max: -1, names: "paths"}, func(e *invocation) error {
			if len(e.args) == 0 {
				e.args = []string{"/"}
			}
			l := lister{invocation: e, headings: len(e.args) > 1 || e.flags.Bool("recursive")}
			return e.each(l.operand)
		}),
	}
}

// lister prints listings.
type lister struct {
	*invocation
	headings bool // name the directory above its listing
	printed  bool // something was; the next heading needs an empty line
	dated    bool // the txid was printed
}

func (l *lister) operand(path string) error {
	info, err := l.fs.Lstat(l.ctx, path)
	if err == nil && info.Mode().Type() == fs.ModeSymlink && !l.flags.Bool("long") {
		if to, serr := l.fs.Stat(l.ctx, path); serr == nil && to.IsDir() {
			info = to
		}
	}
	if err != nil {
		return l.fail(err, path)
	}
	if l.flags.Bool("txid") && !l.dated { // what is asked for later has all these changes too
		l.dated = true
		if err := l.Result(map[string]any{"txid": info.TxID}, "txid %d\n", info.TxID); err != nil {
			return err
		}
	}
	if info.IsDir() {
		return l.directory(path)
	}
	return l.print(func(row func(*client.FileInfo, string) error) error { return row(info, path) })
}

// directory lists one directory, then, if asked, those in it.
func (l *lister) directory(path string) error {
	left := []string{path}
	for len(left) > 0 {
		path, left = left[len(left)-1], left[:len(left)-1]
		if l.headings && !l.JSON {
			if l.printed {
				l.Printf("\n")
			}
			l.Printf("%s:\n", l.Name(path))
		}
		l.printed = true
		var below []string
		err := l.print(func(row func(*client.FileInfo, string) error) error {
			for info, err := range l.fs.Entries(l.ctx, path) {
				if err != nil {
					return l.fail(err, path)
				}
				if err := row(info, info.Name()); err != nil {
					return err
				}
				if info.IsDir() && l.flags.Bool("recursive") {
					below = append(below, fspath.Join(path, info.Name()))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i := len(below) - 1; i >= 0; i-- { // the last one is taken first
			left = append(left, below[i])
		}
	}
	return nil
}

// print runs f with a function that prints one line.
func (l *lister) print(f func(row func(*client.FileInfo, string) error) error) error {
	switch {
	case l.JSON:
		return f(func(i *client.FileInfo, _ string) error { return l.PrintJSON(screen.ToJSON(i)) })
	case l.flags.Bool("long"):
		w := l.Table()
		err := f(func(i *client.FileInfo, name string) error {
			l.long(w, i, name)
			return nil
		})
		if ferr := w.Flush(); err == nil && ferr != nil {
			err = screen.OutputError(ferr)
		}
		return err
	}
	marked := screen.IsTerminal(l.Stdout)
	return f(func(i *client.FileInfo, name string) error {
		mark := ""
		if marked && i.Open != nil {
			mark = l.Marks(i)
		}
		l.Printf("%s%s\n", l.Name(name), mark)
		return nil
	})
}

func (l *lister) long(w *screen.Table, i *client.FileInfo, name string) {
	mark := ""
	if i.Open != nil {
		mark = "w"
	}
	fmt.Fprintf(w, "%s%s%s\t%s\t%s\t%s\t%s\t%s%s\n", screen.ModeString(i.Mode()), screen.ACLMark(i), mark, i.User, i.Group,
		screen.Size(i.Length, l.flags.Bool("human")), screen.ShortTime(i.ModTime()), l.Name(name), l.Marks(i))
}

func treeCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "tree",
		Usage:       "draw a tree of directories",
		UsageText:   "leasefs tree [-L N] [PATH]\n\nExample:\n  leasefs tree -L 2 /",
		Description: "Draws what is below a directory (/ if none is named), and counts it.",
		Flags:       []cli.Flag{&cli.IntFlag{Name: "level", Aliases: []string{"L"}, Usage: "at most `N` levels deep", DefaultText: "all"}},
		Action: p.connected(operands{max: 1, names: "at most one path"}, func(e *invocation) error {
			root := "/"
			if len(e.args) == 1 {
				root = e.args[0]
			}
			info, err := lowlevel.Of(e.fs).Locate(e.ctx, lowlevel.At(root))
			if err != nil {
				return e.fail(err, root)
			}
			d := drawer{invocation: e, levels: e.flags.Int("level")}
			if e.JSON {
				return d.json(info)
			}
			e.Printf("%s\n", e.Name(root))
			if info.IsDir() {
				if err := d.draw(root, "", 1); err != nil {
					return err
				}
			}
			e.Printf("\n%s, %s\n", screen.Plural(d.dirs, "directory", "directories"), screen.Plural(d.files, "file", "files"))
			return nil
		}),
	}
}

// drawer draws trees and counts.
type drawer struct {
	*invocation
	levels      int
	dirs, files uint64
}

func (d *drawer) json(info *client.FileInfo) error {
	root := info.Path // Find tells real paths, whatever links lead there
	if err := d.PrintJSON(screen.ToJSON(info)); err != nil || !info.IsDir() {
		return err
	}
	for i, err := range d.fs.Find(d.ctx, root, client.FindOptions{}) {
		if err != nil {
			return d.fail(err, root)
		}
		depth := strings.Count(strings.TrimPrefix(i.Path, strings.TrimSuffix(root, "/")), "/")
		if i.Path == root || d.levels > 0 && depth > d.levels {
			continue
		}
		if err := d.PrintJSON(screen.ToJSON(i)); err != nil {
			return err
		}
	}
	return nil
}

func (d *drawer) draw(path, indent string, level int) error {
	entries, err := d.fs.ReadDir(d.ctx, path)
	if err != nil {
		return d.fail(err, path)
	}
	for n, i := range entries {
		branch, below := "├── ", "│   "
		if n == len(entries)-1 {
			branch, below = "└── ", "    "
		}
		d.Printf("%s%s%s%s\n", indent, branch, d.Name(i.Name()), d.Marks(i))
		if !i.IsDir() {
			d.files++
			continue
		}
		d.dirs++
		if d.levels > 0 && level >= d.levels {
			continue
		}
		if err := d.draw(fspath.Join(path, i.Name()), indent+below, level+1); err != nil {
			return err
		}
	}
	return nil
}
