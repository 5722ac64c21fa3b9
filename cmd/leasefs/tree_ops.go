package main

import (
	"io/fs"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/trash"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

func mkdirCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "mkdir",
		Usage:     "make directories",
		UsageText: "leasefs mkdir [-p] [-m MODE] [--lease ID] PATH...\n\nExample:\n  leasefs mkdir -p /logs/2026/07",
		Description: "Makes directories. With -p parents too, and one that exists is no error. With --lease\n" +
			"each is deleted, with all that is in it by then, when the granted lease ends; parents\n" +
			"stay. One that exists is an error then, unless it is attached to that lease.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "parents", Aliases: []string{"p"}, Usage: "make parents; no error if it exists"},
			&cli.StringFlag{Name: "mode", Aliases: []string{"m"}, Usage: "octal permission `MODE`", DefaultText: "0777 less the umask"},
			&cli.StringFlag{Name: "lease", Usage: "delete the directories when the granted lease `ID|NAME` ends"},
		},
		Action: reading(p, operands{min: 1, max: -1, names: "one path or more"}, mkdirOptions, func(e *invocation, o newDirectory) error {
			var lease client.LeaseID
			var err error
			if o.lease != "" {
				if lease, err = e.fs.Leases().Find(e.ctx, o.lease); err != nil {
					return e.fail(err, "")
				}
			}
			return e.each(func(path string) error {
				parents := e.flags.Bool("parents")
				switch {
				case lease != 0:
					err = e.fs.Leases().Mkdir(e.ctx, lease, path, o.mode, parents)
				case !e.flags.IsSet("mode"):
					err = lowlevel.Of(e.fs).MkdirMasked(e.ctx, path, 0o777, 0o777&^o.mode, parents)
				case parents:
					err = e.fs.MkdirAll(e.ctx, path, o.mode)
				default:
					err = e.fs.Mkdir(e.ctx, path, o.mode)
				}
				return e.fail(err, path)
			})
		}),
	}
}

// newDirectory is how a directory is made.
type newDirectory struct {
	mode  fs.FileMode
	lease string // id or name
}

// mkdirOptions reads -m and --lease.
func mkdirOptions(e *invocation) (o newDirectory, err error) {
	if o.mode, err = mkdirMode(e); err == nil {
		o.lease, err = e.leaseFlag("lease")
	}
	return o, err
}

// mkdirMode reads -m.
func mkdirMode(c *invocation) (fs.FileMode, error) {
	if !c.flags.IsSet("mode") {
		mode := fs.FileMode(0o777)
		if mask := filemode.Umask(); mask != nil {
			mode &^= *mask
		}
		return mode, nil
	}
	mode, err := filemode.Parse(c.flags.String("mode"))
	if err != nil {
		return 0, argv.Usagef(c.op, "-m: %v", err)
	}
	return mode, nil
}

func mvCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "mv",
		Usage:     "rename or move",
		UsageText: "leasefs mv [--overwrite] [-T] FROM... TO\n\nExample:\n  leasefs mv /in/part-1 /in/part-2 /done",
		Description: "Renames FROM to TO, or moves each FROM into the directory TO. A file that exists is replaced\n" +
			"only with --overwrite. A writer of a moved file continues.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "overwrite", Usage: "replace a file, or an empty directory, at TO"},
			&cli.BoolFlag{Name: "no-target-directory", Aliases: []string{"T"}, Usage: "TO is the new name, even if it is a directory"},
		},
		Action: p.connected(operands{min: 2, max: -1, names: "FROM and TO"}, mv, func(e *invocation) error {
			if len(e.args) > 2 && e.flags.Bool("no-target-directory") {
				return argv.Usagef(e.op, "-T takes FROM and TO only")
			}
			return nil
		}),
	}
}

func mv(e *invocation) error {
	to := e.args[len(e.args)-1]
	e.args = e.args[:len(e.args)-1]
	if err := argv.DistinctNames(e.op, e.args); err != nil {
		return err
	}
	var into uint64
	if !e.flags.Bool("no-target-directory") {
		info, err := e.fs.Stat(e.ctx, to)
		switch {
		case err == nil && info.IsDir():
			into = info.Inode
		case err == nil && len(e.args) > 1:
			return fserror.New(fserror.NotDirectory, e.op, to, "is not a directory, but several paths were given to move there")
		case err != nil && (len(e.args) > 1 || fserror.KindOf(err) != fserror.NotFound):
			return e.fail(err, to)
		}
	}
	overwrite := e.flags.Bool("overwrite")
	return e.each(func(from string) error {
		if into != 0 {
			p, err := fspath.Clean(from)
			if err == nil {
				_, name := fspath.Split(p)
				_, err = lowlevel.Of(e.fs).RenameAt(e.ctx, lowlevel.At(p), lowlevel.Ref{Base: into, Path: name}, overwrite, lowlevel.Taken{})
			}
			return e.fail(err, from)
		}
		return e.fail(e.fs.Rename(e.ctx, from, to, overwrite), from)
	})
}

func rmCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "rm",
		Usage:     "remove files, or trees with -r",
		UsageText: "leasefs rm [-r] [-f] [--skip-trash] PATH...\n\nExample:\n  leasefs rm -r /tmp/job-7",
		Description: "Removes files and links; with -r directories with all that is in them, each in one step. It\n" +
			"continues after an error; the exit code is that of the first. / is refused. A writer\n" +
			"of a removed file loses the lease. Use leasefs trash ls to see what can be restored.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "recursive", Aliases: []string{"r", "R"}, Usage: "directories too, with all that is in them"},
			&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "what does not exist is no error"},
			&cli.BoolFlag{Name: "skip-trash", Usage: "remove for good, also what the trash would keep"},
		},
		Action: p.connected(operands{min: 1, max: -1, names: "one path or more"}, func(e *invocation) error { return e.each(e.rm) }),
	}
}

func (e *invocation) rm(path string) error {
	if path == "/" {
		return fserror.New(fserror.InvalidArgument, e.op, path, "the root is never removed; name what is in it")
	}
	err := trash.Remove(e.ctx, e.fs, &e.Printer, path, e.flags.Bool("recursive"), e.flags.Bool("skip-trash"))
	if fserror.KindOf(err) == fserror.IsDirectory {
		err = fserror.New(fserror.IsDirectory, e.op, path, "is a directory; -r removes it with all that is in it")
	}
	if e.flags.Bool("force") && fserror.KindOf(err) == fserror.NotFound {
		return nil
	}
	return e.fail(err, path)
}

func touchCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "touch",
		Usage:       "make empty files, or set times to now",
		UsageText:   "leasefs touch [-c] PATH...\n\nExample:\n  leasefs touch /out/_SUCCESS",
		Description: "Makes an empty file; of what exists, sets the modification time to now.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "no-create", Aliases: []string{"c"}, Usage: "make nothing"}},
		Action: p.connected(operands{min: 1, max: -1, names: "one path or more"}, func(e *invocation) error {
			return e.each(e.touch)
		}),
	}
}

func truncateCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "truncate",
		Usage:       "shorten files",
		UsageText:   "leasefs truncate -s N PATH...\n\nExample:\n  leasefs truncate -s 1M /logs/a",
		Description: "Cuts files to N bytes. A file never grows by it, and none that is open for write is cut.",
		Flags:       []cli.Flag{&cli.StringFlag{Name: "size", Aliases: []string{"s"}, Usage: "the new length, `N` bytes; K, M, G: times 1,024 each"}},
		Action: reading(p, operands{min: 1, max: -1, names: "one path or more"}, newSize, func(e *invocation, n int64) error {
			return e.each(func(path string) error { return e.fail(e.fs.Truncate(e.ctx, path, n), path) })
		}),
	}
}

// newSize reads -s.
func newSize(c *invocation) (int64, error) {
	s := c.flags.String("size")
	if s == "" {
		return 0, argv.Usagef(c.op, "needs -s N, the new length")
	}
	return c.parseSize("-s", s)
}

func concatCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "concat",
		Usage:       "join files without copying them",
		UsageText:   "leasefs concat TARGET SOURCE...\n\nExample:\n  leasefs concat /out/all /out/part-1 /out/part-2",
		Description: "Moves the contents of the sources, in this order, to the end of TARGET, and removes the\nsources: in one step, or not at all. None of the files may be open for write.",
		Action: p.connected(operands{min: 2, max: -1, names: "TARGET and at least one SOURCE"}, func(e *invocation) error {
			return e.fail(e.fs.Concat(e.ctx, e.args[0], e.args[1:]...), e.args[0])
		}),
	}
}

func lnCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "ln",
		Usage:       "make symbolic links",
		UsageText:   "leasefs ln -s [--lease ID|NAME] TARGET PATH\n\nExample:\n  leasefs ln -s /releases/7 /current",
		Description: "Makes PATH a symbolic link to TARGET, or a link of TARGET's name in it if PATH is a directory.\nTARGET may be relative to the link and need not exist. There are no hard links: -s is needed.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "symbolic", Aliases: []string{"s"}, Usage: "make a symbolic link"},
			&cli.StringFlag{Name: "lease", Usage: "delete the link when the granted lease `ID|NAME` ends"},
		},
		Action: reading(p, operands{min: 2, max: 2, names: "TARGET and PATH", local: true}, func(e *invocation) (lease string, err error) {
			if !e.flags.Bool("symbolic") {
				return "", argv.Usagef(e.op, "there are no hard links; -s makes a symbolic one")
			}
			if e.args[1], err = e.path(e.args[1]); err != nil {
				return "", err
			}
			return e.leaseFlag("lease")
		}, func(e *invocation, lease string) error {
			path, target := e.args[1], e.args[0]
			if info, serr := e.fs.Lstat(e.ctx, path); serr == nil && info.IsDir() {
				_, name := fspath.Split(target)
				path = fspath.Join(path, name)
			}
			if lease != "" {
				id, err := e.fs.Leases().Find(e.ctx, lease)
				if err == nil {
					err = e.fs.Leases().Symlink(e.ctx, id, target, path)
				}
				return e.fail(err, path)
			}
			return e.fail(e.fs.Symlink(e.ctx, target, path), path)
		}),
	}
}
