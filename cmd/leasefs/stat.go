package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
)

func statCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "stat",
		Usage:     "show what is known about a path",
		UsageText: "leasefs stat PATH...\n\nExample:\n  leasefs stat --json /logs/a | jq .holder",
		Description: "Shows attributes, of a file open for write its holder, epoch and lease, and the granted lease that\n" +
			"a file is attached to. A watch from txid + 1 tells all that changed since. Symbolic links are shown\n" +
			"as such; -L follows them.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "dereference", Aliases: []string{"L"}, Usage: "follow symbolic links"}},
		Action: p.connected(operands{min: 1, max: -1, names: "one path or more"}, func(e *invocation) error {
			return e.each(func(path string) error {
				stat := e.fs.Lstat
				if e.flags.Bool("dereference") {
					stat = e.fs.Stat
				}
				info, err := stat(e.ctx, path)
				if err != nil {
					return e.fail(err, path)
				}
				if e.JSON {
					return e.PrintJSON(screen.ToJSON(info))
				}
				e.PrintStat(info)
				return nil
			})
		}),
	}
}

func dfCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "df",
		Usage:     "show the space of the namespace",
		UsageText: "leasefs df [-h]\n\nExample:\n  leasefs df -h",
		Description: "Shows the disk of the active namenode: size, use, what the blocks of files and tails take of it, what\n" +
			"blocks take that wait to be deleted (GARBAGE), and the number of inodes. What is in the trash counts\n" +
			"in all of these until it goes; TRASH is how much that is.",
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "human", Aliases: []string{"h"}, Usage: "bytes as 1.5K, 2.0M"}},
		Action: p.action(operands{}, df),
	}
}

func df(e *invocation) error {
	list, err := e.statuses()
	if err != nil {
		return err
	}
	s, err := e.active(list)
	if err != nil {
		return err
	}
	used := s.DiskTotal - s.DiskFree
	if e.JSON {
		total, taken, free := &s.DiskTotal, &used, &s.DiskFree
		if s.DiskTotal == 0 { // an object store has no size
			total, taken, free = nil, nil, nil
		}
		return e.PrintJSON(map[string]any{
			"namespace": s.NamespaceID, "disk_total": total, "disk_used": taken, "disk_free": free,
			"stored": s.StoredBytes, "garbage": s.GarbageBytes, "trash": s.TrashBytes, "snapshots": s.SnapshotBytes, "tails": s.TailBytes, "journal": s.JournalBytes, "inodes": s.Inodes,
		})
	}
	human := e.flags.Bool("human")
	w := e.Table()
	fmt.Fprintln(w, "NAMESPACE\tSIZE\tUSED\tFREE\tUSE%\tBLOCKS\tGARBAGE\tTRASH\tSNAPSHOTS\tTAILS\tINODES")
	fmt.Fprintln(w, strings.Join([]string{
		screen.OrDash(s.NamespaceID[:min(8, len(s.NamespaceID))]), screen.Size(s.DiskTotal, human), screen.Size(used, human), screen.Size(s.DiskFree, human),
		fmt.Sprintf("%d%%", used*100/max(s.DiskTotal, 1)), screen.Size(s.StoredBytes, human), screen.Size(s.GarbageBytes, human), screen.Size(s.TrashBytes, human), screen.Size(s.SnapshotBytes, human), screen.Size(s.TailBytes, human), fmt.Sprint(s.Inodes),
	}, "\t"))
	return w.Flush()
}

// active is the namenode that serves, among those that answered.
func (c *commandLine) active(list []client.NamenodeStatus) (*client.NamenodeStatus, error) {
	var failed error
	for i := range list {
		if list[i].Err == nil && list[i].Role == "active" {
			return &list[i], nil
		}
		if failed == nil {
			failed = list[i].Err
		}
	}
	return nil, &fserror.Error{Op: c.op, Kind: fserror.Unavailable, Message: "no active namenode could be reached; is one running at --namenode?", Err: failed}
}
