// Package oversee is the part of the command line of a namenode by which its operator
// oversees who asks for what, and for how much: the audit log, the history of leases and the file of shares.
package oversee

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/audit"
	"github.com/leasefs/leasefs/namenode/history"
	"github.com/leasefs/leasefs/namenode/scrub"
)

// Flags are those of the namenode's command.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "pages", Usage: "serve /metrics, /healthz, /readyz, /activez and profiles at `ADDR` instead of --http"},
		&cli.DurationFlag{Name: "lease-history", Usage: "keep for this `LONG` who held files and granted leases; 0: not at all", Value: history.DefaultKeep},
		&cli.StringFlag{Name: "lease-history-size", Usage: "keep at most `SIZE` of it, the latest", Value: "256M"},
		&cli.DurationFlag{Name: "scrub", Usage: "read and verify all blocks and images once in this `LONG`; 0: never", Value: scrub.DefaultEvery},
		&cli.StringFlag{Name: "scrub-rate", Usage: "read at most `SIZE` of blocks a second for that", Value: "32M"},
		&cli.DurationFlag{Name: "archive", Usage: "keep every moment of the last `LONG` in the block store, and deleted blocks as long, for leasefs admin restore --at; 0: nothing; without it: as the active namenode before"},
		&cli.StringFlag{Name: "shares", Usage: "`FILE` of how many calls a second, sessions, watches, … each user and address may have", EnvVars: []string{"LEASEFS_SHARES"}},
		&cli.StringFlag{Name: "audit", Usage: "keep a line of JSON for each call in `FILE`, or on standard error (stderr); the file of each namenode is its own", EnvVars: []string{"LEASEFS_AUDIT"}},
		&cli.StringFlag{Name: "audit-only", Usage: "keep `WHICH` lines: all, changes (and what was denied), denied", Value: "all"},
		&cli.StringFlag{Name: "audit-skip", Usage: "leave out the operations `NAMES`, as lines name them, with commas between, but for what was denied"},
		&cli.StringFlag{Name: "audit-size", Usage: "begin another file when one has `SIZE`", Value: "100M"},
		&cli.IntFlag{Name: "audit-keep", Usage: "keep `N` older files, FILE.1 being the latest", Value: audit.DefaultKeep},
	}
}

// Namenode fills in what the flags say; size reads one of a number of bytes.
func Namenode(op string, flags *cli.Context, size func(flag, text string) (int64, error), cfg *namenode.Config) (err error) {
	cfg.Pages = flags.String("pages")
	if name := flags.String("shares"); name != "" {
		if cfg.Shares, err = namenode.OpenShares(clock.System{}, name); err != nil {
			return err
		}
	}
	if cfg.LeaseHistory = flags.Duration("lease-history"); cfg.LeaseHistory < 0 {
		return argv.Usagef(op, "--lease-history: %s is below 0", cfg.LeaseHistory)
	} else if cfg.LeaseHistory == 0 {
		cfg.LeaseHistory = -1
	}
	if cfg.LeaseHistoryBytes, err = size("lease-history-size", flags.String("lease-history-size")); err != nil {
		return err
	}
	if cfg.LeaseHistoryBytes < history.LeastBytes {
		return argv.Usagef(op, "--lease-history-size: %s is too small; at least 1M", flags.String("lease-history-size"))
	}
	switch cfg.Scrub = flags.Duration("scrub"); {
	case cfg.Scrub == 0:
		cfg.Scrub = -1
	case cfg.Scrub < scrub.LeastEvery:
		return argv.Usagef(op, "--scrub: %s is too short; at least %s, or 0 for never", cfg.Scrub, scrub.LeastEvery)
	}
	if cfg.ScrubRate, err = size("scrub-rate", flags.String("scrub-rate")); err != nil {
		return err
	}
	if cfg.ScrubRate < scrub.LeastRate {
		return argv.Usagef(op, "--scrub-rate: %s is too small; at least 64K", flags.String("scrub-rate"))
	}
	switch cfg.Archive = flags.Duration("archive"); {
	case cfg.Archive == 0 && flags.IsSet("archive"):
		cfg.Archive = -1
	case cfg.Archive != 0 && cfg.Archive < archive.LeastKeep:
		return argv.Usagef(op, "--archive: %s is too short; at least %s, or 0 for nothing", cfg.Archive, archive.LeastKeep)
	}
	a := &cfg.Audit
	a.File = flags.String("audit")
	if a.File == "" {
		for _, name := range []string{"audit-only", "audit-skip", "audit-size", "audit-keep"} {
			if flags.IsSet(name) {
				return argv.Usagef(op, "--%s needs --audit FILE", name)
			}
		}
		return nil
	}
	switch only := flags.String("audit-only"); only {
	case "all":
	case audit.Changes, audit.Denied:
		a.Only = only
	default:
		return argv.Usagef(op, "--audit-only: %q is none of all, changes, denied", only)
	}
	if skip := flags.String("audit-skip"); skip != "" {
		a.Skip = strings.Split(skip, ",")
		if slices.Contains(a.Skip, "") {
			return argv.Usagef(op, "--audit-skip: a name in the list is empty")
		}
	}
	if a.MaxBytes, err = size("audit-size", flags.String("audit-size")); err != nil {
		return err
	}
	switch a.Keep = flags.Int("audit-keep"); {
	case a.MaxBytes < audit.LeastBytes:
		return argv.Usagef(op, "--audit-size: %s is too small; at least 1M", flags.String("audit-size"))
	case a.Keep < 1 || a.Keep > audit.MostKept:
		return argv.Usagef(op, "--audit-keep: %d is not within 1 and %d", a.Keep, audit.MostKept)
	}
	return nil
}
