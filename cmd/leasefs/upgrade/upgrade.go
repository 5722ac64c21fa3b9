// Package upgrade has the commands about rolling upgrades.
package upgrade

import (
	"cmp"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client/upgrade"
	"github.com/leasefs/leasefs/cmd/leasefs/call"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
)

// Command is the command admin upgrade.
func Command(action call.Action) *cli.Command {
	return &cli.Command{
		Name:      "upgrade",
		Usage:     "show or raise the feature level of the namespace",
		UsageText: "leasefs admin upgrade COMMAND\n\nExample:\n  leasefs admin upgrade status",
		Description: "Namenodes of a new release write what those of the release before read, until the feature level is\n" +
			"raised: replace them one by one, and take them back if need be. docs/UPGRADES.md has the steps.",
		Subcommands: []*cli.Command{
			{
				Name:      "status",
				Usage:     "show the level, and what the namenodes know",
				UsageText: "leasefs admin upgrade status\n\nExample:\n  leasefs --namenode nn1:8020,nn2:8020,nn3:8020 admin upgrade status",
				Description: "Shows the feature level of the namespace, what raising it brings, and of each namenode its release\n" +
					"and the newest level that it knows. Name all namenodes: one that is down is known by that alone.\n" +
					"Then the releases of connected clients, this command included, and how many sessions each has.",
				Action: action(0, 0, "", status),
			},
			{
				Name:      "finish",
				Usage:     "raise the level, for good",
				UsageText: "leasefs admin upgrade finish [--without HOST:PORT]\n\nExample:\n  leasefs --namenode nn1:8020,nn2:8020,nn3:8020 admin upgrade finish",
				Description: "Raises the feature level to the newest that the active namenode knows. It cannot be lowered again:\n" +
					"from then on older releases are refused when they start. It fails while a namenode knows less, or\n" +
					"one of --namenode does not answer.",
				Flags: []cli.Flag{
					&cli.StringSliceFlag{Name: "without", Usage: "do not ask the namenode at `HOST:PORT`, which is down: it will need the new release"},
				},
				Action: action(0, 0, "", finish),
			},
		},
	}
}

type namenodeJSON struct {
	Address string  `json:"address"`
	Release *string `json:"release"`
	Newest  *uint64 `json:"newest_level"`
	Error   *string `json:"error,omitempty"`
}

type statusJSON struct {
	Level     uint64         `json:"level"`
	Release   *string        `json:"raised_by"`
	Newest    uint64         `json:"newest_level"`
	Brings    *string        `json:"brings"`
	Namenodes []namenodeJSON `json:"namenodes"`
	Clients   []clientsJSON  `json:"clients"` // null: the active namenode's release does not tell
}

type clientsJSON struct {
	Release  *string `json:"release"`
	Sessions uint64  `json:"sessions"`
}

func status(c *call.Call) error {
	s, err := upgrade.Look(c.Ctx, c.FS)
	if err != nil {
		return err
	}
	return show(c, &s)
}

func show(c *call.Call, s *upgrade.Status) error {
	if c.JSON {
		j := statusJSON{Level: s.Level, Release: screen.OrNull(s.Release), Newest: s.Newest, Brings: screen.OrNull(s.Brings)}
		for _, n := range s.Namenodes {
			m := namenodeJSON{Address: n.Address, Release: screen.OrNull(n.Release), Newest: screen.OrNull(n.Newest)}
			if n.Err != nil {
				text := n.Err.Error()
				m.Error = &text
			}
			j.Namenodes = append(j.Namenodes, m)
		}
		for _, r := range s.Clients {
			j.Clients = append(j.Clients, clientsJSON{screen.OrNull(r.Release), r.Sessions})
		}
		return c.PrintJSON(j)
	}
	text := "the newest that the active namenode knows"
	if s.Level < s.Newest {
		text = fmt.Sprintf("finishing raises it to %d, which brings %s", s.Newest, s.Brings)
	}
	w := c.Table()
	fmt.Fprintf(w, "feature level %d; %s\n\nADDRESS\tRELEASE\tKNOWS\n", s.Level, text)
	for _, n := range s.Namenodes {
		knows := fmt.Sprintf("level %d", n.Newest)
		if n.Err != nil {
			knows = "it does not answer"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", n.Address, screen.OrDash(n.Release), knows)
	}
	if len(s.Clients) > 0 {
		fmt.Fprint(w, "\nCLIENTS\tSESSIONS\n")
	}
	for _, r := range s.Clients {
		fmt.Fprintf(w, "%s\t%d\n", cmp.Or(r.Release, "not told"), r.Sessions)
	}
	return w.Flush()
}

func finish(c *call.Call) error {
	s, err := upgrade.Finish(c.Ctx, c.FS, c.Flags.StringSlice("without")...)
	if err != nil {
		return err
	}
	return c.Summary(map[string]any{"level": s.Level, "raised_by": screen.OrNull(s.Release)}, "the namespace is at feature level %d\n", s.Level)
}
