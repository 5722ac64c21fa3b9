// Package quota has the commands about quotas of directories.
package quota

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/call"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Command is the command quota.
func Command(action call.Action) *cli.Command {
	return &cli.Command{
		Name:      "quota",
		Usage:     "limit how much there may be in directories",
		UsageText: "leasefs quota COMMAND\n\nExample:\n  leasefs quota set /projects/a --names 1000000 --bytes 500G",
		Description: "A quota limits how many names (files, directories and links, itself included) there may be in a\n" +
			"directory and below, and how many bytes the files have there. What would exceed it is refused.\n" +
			"What is in the trash does not count, nor what only snapshots have (SNAPSHOTS); but while that is more\n" +
			"than the limit of bytes, no snapshot is made there. Superusers set quotas.",
		Subcommands: []*cli.Command{setCommand(action), clearCommand(action), showCommand(action), lsCommand(action)},
	}
}

func setCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:      "set",
		Usage:     "set a quota, or change it",
		UsageText: "leasefs quota set [--names N|none] [--bytes SIZE|none] PATH\n\nExample:\n  leasefs quota set --bytes 1T /projects/a",
		Description: "Sets the limits that are given; the other one stays. A limit may be below what there is: then\n" +
			"nothing more comes in until enough has gone.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "names", Usage: "at most `N` files, directories and links, or none for no limit", DefaultText: "as it is"},
			&cli.StringFlag{Name: "bytes", Usage: "at most `SIZE` bytes, such as 500M or 1T, or none for no limit", DefaultText: "as it is"},
		},
		Action: action(1, 1, "PATH", func(c *call.Call) error {
			names, err := limit(c, "names", func(text string) (int64, error) {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil || n < 0 {
					return 0, argv.Usagef(c.Op, "--names: %q is not a number", text)
				}
				return n, nil
			})
			if err != nil {
				return err
			}
			bytes, err := limit(c, "bytes", func(text string) (int64, error) { return argv.ParseSize(c.Op, "--bytes", text) })
			if err != nil {
				return err
			}
			if names == quota.Keep && bytes == quota.Keep {
				return argv.Usagef(c.Op, "give --names, --bytes or both")
			}
			return set(c, names, bytes)
		}),
	}
}

// limit is what a flag says.
func limit(c *call.Call, flag string, parse func(string) (int64, error)) (int64, error) {
	switch text := c.Flags.String(flag); {
	case !c.Flags.IsSet(flag):
		return quota.Keep, nil
	case text == "none":
		return quota.None, nil
	default:
		return parse(text)
	}
}

func clearCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:        "clear",
		Usage:       "take a quota away",
		UsageText:   "leasefs quota clear PATH\n\nExample:\n  leasefs quota clear /projects/a",
		Description: "Takes both limits away. That there is no quota is no error.",
		Action:      action(1, 1, "PATH", func(c *call.Call) error { return set(c, quota.None, quota.None) }),
	}
}

func showCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:        "show",
		Usage:       "show which quotas something counts in",
		UsageText:   "leasefs quota show [-h] PATH\n\nExample:\n  leasefs quota show /projects/a/b",
		Description: "Shows the quota of a directory, if it has one, and those of the directories above it, the nearest\nfirst.",
		Flags:       []cli.Flag{humanFlag()},
		Action: action(1, 1, "PATH", func(c *call.Call) error {
			path, err := c.Path(0)
			if err != nil {
				return err
			}
			above, err := quota.Above(c.Ctx, c.FS, path)
			if err != nil {
				return fserror.With(err, c.Op, path)
			}
			if len(above) == 0 && !c.JSON {
				c.Note("nothing limits %s", c.Name(path))
			}
			return list(c, func(fn func(*quota.Quota) error) error {
				for _, q := range above {
					if err := fn(q); err != nil {
						return err
					}
				}
				return nil
			})
		}),
	}
}

func lsCommand(action call.Action) *cli.Command {
	return &cli.Command{
		Name:        "ls",
		Usage:       "list quotas",
		UsageText:   "leasefs quota ls [-h]\n\nExample:\n  leasefs quota ls -h",
		Description: "Lists the quotas of all directories that you may see.",
		Flags:       []cli.Flag{humanFlag()},
		Action: action(0, 0, "", func(c *call.Call) error {
			return list(c, func(fn func(*quota.Quota) error) error { return quota.List(c.Ctx, c.FS, fn) })
		}),
	}
}

func humanFlag() cli.Flag {
	return &cli.BoolFlag{Name: "human", Aliases: []string{"h"}, Usage: "bytes as 1.5K, 2.0M"}
}

func set(c *call.Call, names, bytes int64) error {
	path, err := c.Path(0)
	if err != nil {
		return err
	}
	return fserror.With(quota.Set(c.Ctx, c.FS, path, names, bytes), c.Op, path)
}

// JSON is a quota as --json has it; a limit of null: there is none.
type JSON struct {
	Path      string `json:"path"`
	Names     *int64 `json:"names"`
	UsedNames int64  `json:"used_names"`
	Bytes     *int64 `json:"bytes"`
	UsedBytes int64  `json:"used_bytes"`
	Snapshots int64  `json:"snapshot_bytes"`
}

// JSONOf is that of a quota.
func JSONOf(q client.FullQuota) JSON {
	return JSON{q.Path, orNull(q.Names), q.UsedNames, orNull(q.Bytes), q.UsedBytes, q.SnapshotBytes}
}

// Heading is above the rows of a table of quotas.
const Heading = "NAMES\tOF\t\tBYTES\tOF\t\tSNAPSHOTS\tPATH"

// Row is the line of a quota in a table, whose last column is path.
func Row(q client.FullQuota, human bool, path string) string {
	size := func(n int64) string { return screen.Size(n, human) }
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	return fmt.Sprintf("%s\t%s\t%s\t%s", column(q.UsedNames, q.Names, count), column(q.UsedBytes, q.Bytes, size), size(q.SnapshotBytes), path)
}

func list(c *call.Call, each func(func(*quota.Quota) error) error) error {
	w, none := c.Table(), true
	err := each(func(q *quota.Quota) error {
		if c.JSON {
			return c.PrintJSON(JSONOf(client.FullQuota(*q)))
		}
		if none {
			fmt.Fprintln(w, Heading)
		}
		none = false
		fmt.Fprintln(w, Row(client.FullQuota(*q), c.Flags.Bool("human"), c.Name(q.Path)))
		return nil
	})
	return errors.Join(err, w.Flush())
}

func orNull(limit int64) *int64 {
	if limit == quota.None {
		return nil
	}
	return &limit
}

// column is how much of a limit is used, the limit, and how many percent that is.
func column(used, limit int64, text func(int64) string) string {
	switch limit {
	case quota.None:
		return text(used) + "\t-\t"
	case 0:
		return text(used) + "\t0\t"
	}
	return fmt.Sprintf("%s\t%s\t%.0f%%", text(used), text(limit), 100*float64(used)/float64(limit))
}
