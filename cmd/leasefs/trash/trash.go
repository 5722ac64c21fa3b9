// Package trash has the commands about the trash.
package trash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/trash"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/call"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Command is the command trash.
func Command(action call.Action) *cli.Command {
	return &cli.Command{
		Name:      "trash",
		Usage:     "show, restore and empty what was deleted",
		UsageText: "leasefs trash COMMAND\n\nExample:\n  leasefs xattr set /data " + trash.Xattr + " 7d\n  leasefs rm /data/f\n  leasefs trash restore /data/f",
		Description: "What is deleted or replaced below a directory that has the extended attribute\n" +
			trash.Xattr + " is kept for so long (7d, 12h, 30m, 90s, off), whoever deletes it and\n" +
			"how: by rm, a mount, a rename over it. The nearest directory that has it counts. Who deleted\n" +
			"something has it in the trash, who owned it does, and the superuser.",
		Subcommands: []*cli.Command{lsCommand(action), restoreCommand(action), emptyCommand(action)},
	}
}

func allFlag() cli.Flag {
	return &cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "of all users; only a superuser may"}
}

func lsCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:        "ls",
		Usage:       "list what is in the trash",
		UsageText:   "leasefs trash ls [-a] [PATH]\n\nExample:\n  leasefs trash ls /data",
		Description: "Lists what you deleted or owned, the newest first; with PATH, what had that path or was below it.",
		Flags:       []cli.Flag{allFlag()},
		Action: action(0, 1, "PATH", func(c *call.Call) error {
			f, err := filter(c)
			if err != nil {
				return err
			}
			return list(c, f)
		}),
	}
}

func restoreCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:        "restore",
		Usage:       "bring something back",
		UsageText:   "leasefs trash restore [-a] ID|PATH [TO]\n\nExample:\n  leasefs trash restore /data/f /data/f.old",
		Description: "Brings back the entry ID, or the newest one that had PATH, where it was, or as TO. Nothing may\nhave that name, and its directory must be there.",
		Flags:       []cli.Flag{allFlag()},
		Action:      action(1, 2, "ID|PATH [TO]", restore),
	}
}

func emptyCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:        "empty",
		Usage:       "remove things from the trash for good",
		UsageText:   "leasefs trash empty [-a] [--older TIME] [PATH | ID...]\n\nExample:\n  leasefs trash empty --older 24h",
		Description: "Removes for good the entries ID, or those that trash ls lists.",
		Flags: []cli.Flag{
			allFlag(),
			&cli.DurationFlag{Name: "older", Usage: "only what was deleted `TIME` ago or earlier, such as 24h", DefaultText: "everything"},
		},
		Action: action(0, -1, "PATH or IDs", empty),
	}
}

func filter(c *call.Call) (f trash.Filter, err error) {
	f.All = c.Flags.Bool("all")
	if len(c.Args) > 0 {
		f.Below, err = c.Path(0)
	}
	return f, err
}

type entryJSON struct {
	ID      uint64 `json:"id"`
	Path    string `json:"path"`
	User    string `json:"deleted_by"`
	Owner   string `json:"owner"`
	Dir     bool   `json:"directory"`
	Length  *int64 `json:"length"`
	Deleted string `json:"deleted"`
	LeftMS  int64  `json:"left_ms"`
}

func list(c *call.Call, f trash.Filter) error {
	w, none := c.Table(), true
	err := trash.List(c.Ctx, c.FS, f, func(e *trash.Entry) error {
		if c.JSON {
			length := &e.Length
			if e.Length < 0 {
				length = nil
			}
			return c.PrintJSON(entryJSON{e.ID, e.Path, e.User, e.Owner, e.IsDir, length, e.Deleted.UTC().Format(screen.TimeJSON), e.Left.Milliseconds()})
		}
		if none {
			fmt.Fprintln(w, "ID\tDELETED\tBY\tOWNER\tLEFT\tBYTES\tPATH")
		}
		none = false
		size, name := strconv.FormatInt(e.Length, 10), c.Name(e.Path)
		if e.Length < 0 {
			size = "-"
		}
		if e.IsDir {
			name = strings.TrimSuffix(name, "/") + "/"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.Deleted.Format(time.DateTime), e.User, e.Owner, e.Left.Round(time.Second), size, name)
		return nil
	})
	return errors.Join(err, w.Flush())
}

// errFound ends a list.
var errFound = errors.New("found")

// find is an entry by its number, or the newest by the path that it had: the first operand.
func find(c *call.Call) (found *trash.Entry, err error) {
	what := c.Args[0]
	id, byID := number(what)
	f := trash.Filter{All: c.Flags.Bool("all")}
	if !byID {
		if f.Below, err = c.Path(0); err != nil {
			return nil, err
		}
	}
	err = trash.List(c.Ctx, c.FS, f, func(e *trash.Entry) error {
		switch {
		case byID && e.ID == id, !byID && !f.All && e.Path == f.Below:
			found = e
			return errFound
		case !byID && e.Path == f.Below && (found == nil || e.Deleted.After(found.Deleted)):
			found = e
		}
		return nil
	})
	if err == nil && found == nil {
		err = fserror.New(fserror.NotFound, c.Op, "", "there is no %s in the trash among what you deleted or owned; leasefs trash ls lists that", what)
	}
	if errors.Is(err, errFound) {
		err = nil
	}
	return found, err
}

// number is the ID that an operand is, if it is no path.
func number(what string) (id uint64, ok bool) {
	id, err := strconv.ParseUint(what, 10, 64)
	return id, err == nil
}

func restore(c *call.Call) error {
	e, err := find(c)
	if err != nil {
		return err
	}
	to := e.Path
	if len(c.Args) > 1 {
		if to, err = c.Path(1); err != nil {
			return err
		}
	}
	if err := trash.Restore(c.Ctx, c.FS, e.ID, to); err != nil {
		return fserror.With(err, c.Op, to)
	}
	return c.Result(map[string]any{"id": e.ID, "path": to}, "%s is back\n", c.Name(to))
}

func empty(c *call.Call) error {
	var ids []uint64
	for _, arg := range c.Args {
		if id, ok := number(arg); ok {
			ids = append(ids, id)
		}
	}
	named := len(ids) > 0
	switch {
	case named && len(ids) < len(c.Args) || !named && len(c.Args) > 1:
		return argv.Usagef(c.Op, "takes one PATH, or IDs")
	case named && c.Flags.IsSet("older"):
		return argv.Usagef(c.Op, "--older is not for IDs")
	}
	if !named {
		f, err := filter(c)
		if err == nil {
			err = trash.List(c.Ctx, c.FS, f, func(e *trash.Entry) error {
				switch { // this machine's clock may be wrong
				case c.Flags.IsSet("older") && e.Kept < 0:
					return fserror.New(fserror.Unsupported, "", "", "the namenode is of an earlier release, which does not say for how long entries have been kept: upgrade it, or name the IDs that leasefs trash ls lists")
				case !c.Flags.IsSet("older") || e.Kept >= c.Flags.Duration("older"):
					ids = append(ids, e.ID)
				}
				return nil
			})
		}
		if err != nil {
			return fserror.With(err, c.Op, f.Below)
		}
	}
	removed, err := 0, error(nil)
	if named { // each has to go
		for _, id := range ids {
			n, eerr := trash.Empty(c.Ctx, c.FS, id)
			removed, err = removed+n, cmp.Or(err, eerr)
			if eerr != nil && fserror.KindOf(eerr) != fserror.Permission {
				break
			}
		}
	} else {
		removed, err = trash.Empty(c.Ctx, c.FS, ids...)
	}
	if err != nil {
		return fserror.With(err, c.Op, "")
	}
	if left := len(ids) - removed; !named && left > 0 {
		c.Note("%s not removed: directories that another user deleted can only be restored by their owner, and others may be gone already", screen.Plural(uint64(left), "entry was", "entries were")) //nolint:gosec // a count
	}
	return c.Result(map[string]any{"removed": removed}, "removed %s for good\n", screen.Plural(uint64(removed), "entry", "entries")) //nolint:gosec // a count
}

// Remove is trash.Remove that says so if the trash has it now.
func Remove(ctx context.Context, fs *client.FS, p *screen.Printer, path string, recursive, skip bool) error {
	trashed, err := trash.Remove(ctx, fs, path, recursive, skip)
	if err == nil && trashed {
		p.Note("%s is in the trash; leasefs trash restore %s brings it back", p.Name(path), p.Name(path))
	}
	return err
}
