package main

import (
	"cmp"
	"io/fs"
	"path"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

func findCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "find",
		Usage:     "find files below a path",
		UsageText: "leasefs find PATH [--open] [--holder H] [--name GLOB] [--type f|d|l]\n\nExample:\n  leasefs find /logs --open --holder ingest-3",
		Description: "Prints the paths of all that is at and below PATH, as of one moment, and that fits every\n" +
			"flag given.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "open", Usage: "only files open for write"},
			&cli.StringFlag{Name: "holder", Usage: "only files that the client `NAME` or session holds"},
			&cli.StringFlag{Name: "name", Usage: "only names that fit the shell pattern `GLOB`"},
			&cli.StringFlag{Name: "type", Usage: "only `T`: f files, d directories, l symbolic links"},
			&cli.BoolFlag{Name: "print0", Aliases: []string{"0"}, Usage: "end each path with a NUL byte, for xargs -0"},
		},
		Action: reading(p, operands{min: 1, max: 1, names: "PATH"}, findFilter, find),
	}
}

func find(e *invocation, fits func(*client.FileInfo) bool) error {
	opts := client.FindOptions{OpenOnly: e.flags.Bool("open"), Holder: e.flags.String("holder")}
	for i, err := range e.fs.Find(e.ctx, e.args[0], opts) {
		switch {
		case err != nil:
			return e.fail(err, e.args[0])
		case !fits(i):
		case e.JSON:
			if err := e.PrintJSON(screen.ToJSON(i)); err != nil {
				return err
			}
		case e.flags.Bool("print0"):
			e.Printf("%s\x00", i.Path)
		default:
			e.Printf("%s\n", e.Name(i.Path))
		}
	}
	return nil
}

// findFilter reads --name and --type.
func findFilter(c *invocation) (func(*client.FileInfo) bool, error) {
	glob := c.flags.String("name")
	if _, err := path.Match(glob, ""); err != nil {
		return nil, argv.Usagef(c.op, "--name: %q is not a valid pattern: %v", glob, err)
	}
	kind := c.flags.String("type")
	want, is := map[string]fs.FileMode{"": 0, "f": 0, "d": fs.ModeDir, "l": fs.ModeSymlink}[kind]
	if !is {
		return nil, argv.Usagef(c.op, "--type: %q is none of f, d, l", kind)
	}
	return func(i *client.FileInfo) bool {
		if kind != "" && i.Mode().Type() != want {
			return false
		}
		ok, _ := path.Match(glob, i.Name()) // the pattern was checked
		return glob == "" || ok
	}, nil
}

func duCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "du",
		Usage:     "count bytes below paths",
		UsageText: "leasefs du [-s] [-h] [--kept] [PATH...]\n\nExample:\n  leasefs du -s -h /logs /tmp",
		Description: "Prints the bytes of all files below each directory at and below PATH (/ if none is named),\n" +
			"children first; with -s only for PATH itself. With --kept there are two more columns before the path:\n" +
			"bytes that were deleted there and are in the trash, and bytes of blocks that only snapshots have.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "summarize", Aliases: []string{"s"}, Usage: "only the sum for each argument"},
			&cli.BoolFlag{Name: "kept", Usage: "also what is kept in the trash, and in snapshots only (implies -s)"},
			&cli.BoolFlag{Name: "human", Aliases: []string{"h"}, Usage: "bytes as 1.5K, 2.0M"},
		},
		Action: p.connected(operands{max: -1, names: "paths"}, func(e *invocation) error {
			if len(e.args) == 0 {
				e.args = []string{"/"}
			}
			if e.flags.Bool("summarize") || e.flags.Bool("kept") {
				return e.each(e.duSum)
			}
			return e.each(e.duTree)
		}),
	}
}

func (e *invocation) duSum(path string) error {
	s, err := e.fs.Summary(e.ctx, path)
	if err != nil {
		return e.fail(err, path)
	}
	return e.duLine(path, duCount{s.Length, s.Files, s.Directories, &s})
}

// duCount is what is below one directory, the directory included.
type duCount struct {
	length      int64
	files, dirs uint64
	kept        *client.Summary // with what is not in the others; nil: nobody asked
}

func (e *invocation) duLine(path string, c duCount) error {
	line := map[string]any{"path": path, "length": c.length, "files": c.files, "directories": c.dirs}
	sizes, human := "", e.flags.Bool("human")
	if k := c.kept; k != nil {
		line["trash_bytes"], line["snapshot_bytes"] = k.TrashBytes, k.SnapshotBytes
		if e.flags.Bool("kept") {
			sizes = screen.Size(k.TrashBytes, human) + "\t" + screen.Size(k.SnapshotBytes, human) + "\t"
		}
	}
	return e.Result(line, "%s\t%s%s\n", screen.Size(c.length, human), sizes, e.Name(path))
}

// duTree counts below each directory: by its parent, so that one pass from the
// last directory to the first sums all up.
func (e *invocation) duTree(path string) error {
	at, err := lowlevel.Of(e.fs).Locate(e.ctx, lowlevel.At(path))
	if err != nil {
		return e.fail(err, path)
	}
	root := at.Path // Find tells real paths, whatever links lead there
	counts := map[string]*duCount{root: {}}
	order := []string{root}
	for i, err := range e.fs.Find(e.ctx, root, client.FindOptions{}) {
		if err != nil {
			return e.fail(err, path)
		}
		switch {
		case i.IsDir() && i.Path == root:
			counts[root].dirs = 1
		case i.IsDir():
			counts[i.Path] = &duCount{dirs: 1}
			order = append(order, i.Path)
		default:
			dir, _ := fspath.Split(i.Path)
			c := cmp.Or(counts[dir], counts[root])
			c.length += i.Length
			if i.Mode().IsRegular() {
				c.files++
			}
		}
	}
	for n := len(order) - 1; n > 0; n-- { // a directory comes after its parent
		c := counts[order[n]]
		dir, _ := fspath.Split(order[n])
		if up := counts[dir]; up != nil {
			up.length += c.length
			up.files += c.files
			up.dirs += c.dirs
		}
		if err := e.duLine(order[n], *c); err != nil {
			return err
		}
	}
	return e.duLine(path, *counts[root])
}
