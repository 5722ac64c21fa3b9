// Package snapshot has the commands about snapshots of directories.
package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/call"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/transfer"
)

// Command is the command snapshot.
func Command(action call.Action) *cli.Command {
	return &cli.Command{
		Name:      "snapshot",
		Usage:     "keep directories as they are now, and look at them or restore them later",
		UsageText: "leasefs snapshot COMMAND\n\nExample:\n  leasefs snapshot allow /data\n  leasefs snapshot create /data before\n  leasefs ls /data/.snapshot/before",
		Description: "A snapshot is a directory with all that is below it, as it was when it was made; it is read at\n" +
			"DIR/.snapshot/NAME. A superuser allows a directory to have some; its owner makes, renames and\n" +
			"deletes them. A directory that has some cannot be deleted.",
		Subcommands: []*cli.Command{
			allowCommand(action, "allow", "let a directory have snapshots", "Lets DIR have snapshots, which its owner and superusers make. Only a superuser may allow it.", snapshots.Allow),
			allowCommand(action, "disallow", "let a directory have no snapshots any more", "Takes it back that DIR may have snapshots. It must have none.", snapshots.Disallow),
			createCommand(action), lsCommand(action), renameCommand(action), rmCommand(action), diffCommand(action), restoreCommand(action),
		},
	}
}

func allowCommand(action call.Action, name, usage, description string, do func(context.Context, *client.FS, string) error) *cli.Command {
	return &cli.Command{
		Name:        name,
		Usage:       usage,
		UsageText:   "leasefs snapshot " + name + " DIR\n\nExample:\n  leasefs snapshot " + name + " /data",
		Description: description,
		Action:      action(1, 1, "DIR", func(c *call.Call) error { return of(c, func(dir string) error { return do(c.Ctx, c.FS, dir) }) }),
	}
}

func createCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "make a snapshot",
		UsageText: "leasefs snapshot create DIR [NAME]\n\nExample:\n  leasefs snapshot create /data before-the-upgrade",
		Description: "Makes a snapshot of DIR at once, whatever is in it, and prints its path. Without NAME its name\n" +
			"tells the time in UTC: s20260728-153059.123. Of a file that is open for write it has what was flushed.",
		Action: action(1, 2, "DIR [NAME]", func(c *call.Call) error {
			return of(c, func(dir string) error {
				name, err := snapshots.Make(c.Ctx, c.FS, dir, strings.Join(c.Args[1:], ""))
				if err != nil {
					return err
				}
				path := snapshots.Path(dir, name, "")
				return c.Result(map[string]any{"name": name, "path": path}, "%s\n", c.Name(path))
			})
		}),
	}
}

func lsCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:      "ls",
		Usage:     "list snapshots",
		UsageText: "leasefs snapshot ls [-h] [-0] [DIR]\n\nExample:\n  leasefs snapshot ls /data\n  leasefs snapshot ls -0 /data | head -z -n -14 | xargs -0 -r leasefs snapshot rm -- /data",
		Description: "Lists the snapshots of DIR, the first one made first; or the directories of yours that may\n" +
			"have snapshots, of a superuser all. HELD are the bytes of what was deleted or changed that only\n" +
			"snapshots have: with each snapshot what it has and no newer one, of which deleting it frees what\n" +
			"no older one has, either.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "human", Aliases: []string{"h"}, Usage: "bytes as 1.5K, 2.0M"},
			&cli.BoolFlag{Name: "print0", Aliases: []string{"0"}, Usage: "only names, or paths, each with a NUL byte at its end, for xargs -0"},
		},
		Action: action(0, 1, "DIR", func(c *call.Call) error {
			if len(c.Args) == 0 {
				return fserror.With(dirs(c), c.Op, "")
			}
			return of(c, func(dir string) error { return list(c, dir) })
		}),
	}
}

func renameCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:        "rename",
		Usage:       "rename a snapshot",
		UsageText:   "leasefs snapshot rename DIR NAME NEWNAME\n\nExample:\n  leasefs snapshot rename /data before monday",
		Description: "Gives a snapshot of DIR another name. Whoever has a path in it open continues to read.",
		Action: action(3, 3, "DIR NAME NEWNAME", func(c *call.Call) error {
			return of(c, func(dir string) error { return snapshots.Rename(c.Ctx, c.FS, dir, c.Args[1], c.Args[2]) })
		}),
	}
}

func rmCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:        "rm",
		Usage:       "delete snapshots",
		UsageText:   "leasefs snapshot rm DIR NAME...\n\nExample:\n  leasefs snapshot rm /data before",
		Description: "Deletes snapshots of DIR. What only they have is freed in the background.",
		Action: action(2, -1, "DIR NAME...", func(c *call.Call) error {
			return of(c, func(dir string) error {
				for _, name := range c.Args[1:] {
					if err := snapshots.Delete(c.Ctx, c.FS, dir, name); err != nil {
						return err
					}
				}
				return nil
			})
		}),
	}
}

func diffCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "show what was changed",
		UsageText: "leasefs snapshot diff DIR FROM [TO]\n\nExample:\n  leasefs snapshot diff /data before",
		Description: "Shows what was changed in DIR from the snapshot FROM to the snapshot TO, or to how it is now: + for\n" +
			"what was made, - for what was deleted, M for what was modified, R for what was renamed. What came or\n" +
			"went with a directory is not shown. Only the owner of DIR and superusers may.",
		Action: action(2, 3, "DIR FROM [TO]", func(c *call.Call) error {
			return of(c, func(dir string) error { return diff(c, dir, c.Args[1], strings.Join(c.Args[2:], "")) })
		}),
	}
}

func restoreCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:      "restore",
		Usage:     "bring a directory, or something in it, back to what a snapshot has",
		UsageText: "leasefs snapshot restore [--delete] [--dry-run] [--workers N] DIR NAME [PATH]\n\nExample:\n  leasefs snapshot restore --dry-run --delete /data before\n  leasefs snapshot restore /data before reports/2026",
		Description: "Copies back what was changed or deleted in DIR since the snapshot NAME, or in PATH, which is\n" +
			"relative to DIR: each file whole, by a rename, with mode, owner, time, ACL and extended attributes.\n" +
			"What was made since stays without --delete, unless it has the name of a file that comes back. It\n" +
			"continues after an error; the exit code is that of the first. Only what was changed takes time.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "delete", Usage: "remove what was made since"},
			&cli.BoolFlag{Name: "dry-run", Usage: "only show what would be done"},
			&cli.IntFlag{Name: "workers", Usage: "copy `N` files at once", Value: 8},
		},
		Action: action(2, 3, "DIR NAME [PATH]", func(c *call.Call) error {
			n := c.Flags.Int("workers")
			if n < 1 || n > 256 {
				return argv.Usagef(c.Op, "--workers: %d is not within 1 and 256", n)
			}
			return of(c, func(dir string) error { return restore(c, dir, n) })
		}),
	}
}

// of runs something with the directory that was typed.
func of(c *call.Call, run func(dir string) error) error {
	dir, err := c.Path(0)
	if err == nil {
		err = run(dir)
	}
	return fserror.With(err, c.Op, c.Args[0])
}

type snapshotJSON struct {
	ID   uint64 `json:"id"`
	Name string `json:"name"`
	Path string `json:"path"`
	Made string `json:"made"`
	Held int64  `json:"held_bytes"`
}

func list(c *call.Call, dir string) error {
	var all []*snapshots.Snapshot
	err := snapshots.List(c.Ctx, c.FS, dir, func(s *snapshots.Snapshot) error {
		all = append(all, s)
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *snapshots.Snapshot) int { return cmp.Or(a.Made.Compare(b.Made), cmp.Compare(a.Name, b.Name)) })
	w := c.Table()
	zero := c.Flags.Bool("print0") && !c.JSON
	if len(all) > 0 && !c.JSON && !zero {
		fmt.Fprintln(w, "MADE\tHELD\tNAME")
	}
	for _, s := range all {
		if c.JSON {
			if err := c.PrintJSON(snapshotJSON{s.ID, s.Name, snapshots.Path(dir, s.Name, ""), s.Made.UTC().Format(screen.TimeJSON), s.Held}); err != nil {
				return err
			}
			continue
		}
		if zero {
			c.Printf("%s\x00", s.Name)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", screen.ShortTime(s.Made), screen.Size(s.Held, c.Flags.Bool("human")), screen.QuoteName(s.Name))
	}
	return w.Flush()
}

type dirJSON struct {
	Path      string `json:"path"`
	Owner     string `json:"owner"`
	Snapshots int    `json:"snapshots"`
	Held      int64  `json:"held_bytes"`
}

func dirs(c *call.Call) error {
	w, none := c.Table(), true
	err := snapshots.Dirs(c.Ctx, c.FS, func(dir snapshots.DirInfo) error {
		if c.JSON {
			return c.PrintJSON(dirJSON{dir.Path, dir.User, dir.Snapshots, dir.Held})
		}
		if c.Flags.Bool("print0") {
			c.Printf("%s\x00", dir.Path)
			return nil
		}
		if none {
			fmt.Fprintln(w, "SNAPSHOTS\tHELD\tOWNER\tPATH")
		}
		none = false
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", dir.Snapshots, screen.Size(dir.Held, c.Flags.Bool("human")), screen.QuoteName(dir.User), screen.QuoteName(dir.Path))
		return nil
	})
	return errors.Join(err, w.Flush())
}

type changeJSON struct {
	Change  string  `json:"change"`
	Type    string  `json:"type"`
	Path    string  `json:"path"`
	NewPath *string `json:"new_path"`
	Changed bool    `json:"changed"`
	Content bool    `json:"content"`
}

var signs = map[snapshots.ChangeType]string{snapshots.Created: "+", snapshots.Deleted: "-", snapshots.Modified: "M", snapshots.Renamed: "R"}

func diff(c *call.Call, dir, from, to string) error {
	var all []*snapshots.Change
	leftOut, err := snapshots.Compare(c.Ctx, c.FS, dir, from, to, func(d *snapshots.Change) error {
		all = append(all, d)
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *snapshots.Change) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(signs[b.Type], signs[a.Type])) // what was deleted first
	})
	for _, d := range all {
		if c.JSON {
			if err := c.PrintJSON(changeJSON{
				d.Type.String(), screen.TypeName(d.Kind), d.Path, screen.OrNull(d.NewPath), d.Type != snapshots.Renamed || d.Changed, d.Content,
			}); err != nil {
				return err
			}
			continue
		}
		line := signs[d.Type] + " " + shown(d.Path, d)
		if d.Type == snapshots.Renamed {
			line += " -> " + shown(d.NewPath, d)
		}
		c.Printf("%s\n", line)
	}
	for _, p := range leftOut {
		c.PrintError(fserror.New(fserror.Permission, c.Op, fspath.Join(dir, p), "what was changed in this directory is left out, since you may not list it"))
	}
	return nil
}

// below is a path below the directory, for a person.
func shown(path string, d *snapshots.Change) string {
	switch {
	case path == "":
		return "."
	case d.Kind.IsDir():
		return quoted(path + "/")
	}
	return quoted(path)
}

// quoted is a path that cannot be taken for another, or for more than one, also in a pipe.
func quoted(path string) string {
	if strings.Contains(path, " -> ") || strings.HasPrefix(path, `"`) {
		return strconv.Quote(path)
	}
	return screen.QuoteName(path)
}

type stepJSON struct {
	Do    string `json:"do"`
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

func restore(c *call.Call, dir string, workers int) error {
	below := ""
	if len(c.Args) > 2 {
		path, err := fspath.Clean(fspath.Join(dir, c.Args[2]))
		if strings.HasPrefix(c.Args[2], "/") {
			path, err = fspath.Clean(c.Args[2])
		}
		if err != nil {
			return err
		}
		if path != dir {
			var ok bool
			if below, ok = strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/"); !ok {
				return argv.Usagef(c.Op, "%s is not below %s", c.Args[2], dir)
			}
		}
	}
	var failed error
	dry := c.Flags.Bool("dry-run")
	bar := c.NewBar(c.Op)
	o := transfer.RestoreOptions{Delete: c.Flags.Bool("delete"), DryRun: dry, Workers: workers, Progress: bar.Bytes, Failed: func(path string, err error) {
		failed = err
		c.PrintError(fserror.With(err, c.Op, path))
	}}
	if dry {
		o.Tell = func(s transfer.RestoreStep) {
			if c.JSON {
				_ = c.PrintJSON(stepJSON{s.Do, s.Path, s.Bytes}) // Flush tells of what cannot be written
				return
			}
			c.Printf("%s %s\n", s.Do, quoted(s.Path))
		}
	}
	done, err := transfer.Restore(c.Ctx, c.FS, dir, c.Args[1], below, o)
	bar.Finish()
	if failed != nil && err != nil {
		err = screen.Reported(err)
	}
	if err != nil && failed == nil || c.Ctx.Err() != nil {
		return err
	}
	what := "restored"
	if dry {
		what = "would restore"
	}
	removed := fmt.Sprintf("%d removed", done.Removed)
	if done.Left > 0 {
		removed = fmt.Sprintf("%d made since left (--delete removes them)", done.Left)
	}
	return errors.Join(err, c.Summary(map[string]any{
		"files": done.Files, "directories": done.Directories, "symlinks": done.Symlinks, "attributes": done.Attributes,
		"removed": done.Removed, "left": done.Left, "bytes": done.Bytes, "failed": done.Failed, "dry_run": dry,
	}, "%s %s and %s, %d bytes, attributes of %d more, %s\n", what,
		screen.Plural(uint64(done.Files+done.Symlinks), "file", "files"), screen.Plural(uint64(done.Directories), "directory", "directories"), //nolint:gosec // counts
		done.Bytes, done.Attributes, removed))
}
