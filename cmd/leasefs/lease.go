package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	history "github.com/leasefs/leasefs/client/leasehistory"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/leasehistory"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
)

func leaseCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "lease",
		Usage:       "see who holds files for write; recover abandoned ones; grant leases",
		UsageText:   "leasefs lease COMMAND\n\nExample:\n  leasefs lease ls --expired",
		Description: "Each client process that has files open for write holds one lease over all of them. Others can be\ngranted, with a time to live of their own and with attached files, which are deleted when they end.",
		Subcommands: append([]*cli.Command{
			{
				Name:        "ls",
				Usage:       "list leases",
				UsageText:   "leasefs lease ls [--expired] [--holder H] [--sort KEY] [--limit N]\n\nExample:\n  leasefs lease ls --sort idle --limit 10",
				Description: "Lists leases in the order of their ids, or of KEY: holder, its host, how many files, how long since the last\nrenewal, and the state: live, soft (another may take the files) or hard (about to be closed).",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "expired", Usage: "only those past the soft limit"},
					&cli.StringFlag{Name: "holder", Usage: "only those of the client `NAME` or session"},
					&cli.StringFlag{Name: "sort", Usage: "by `KEY`: idle (the longest first), remaining (the least first) or files (the most first)", DefaultText: "by id"},
					&cli.IntFlag{Name: "limit", Usage: "only the first `N`", DefaultText: "all"},
				},
				Action: reading(p, operands{}, leaseFilter, (*invocation).listLeases),
			},
			{
				Name:        "show",
				Usage:       "show leases with their files",
				UsageText:   "leasefs lease show ID|NAME|HOLDER|PATH\n\nExample:\n  leasefs lease show /logs/a",
				Description: "Shows the lease that has the id or the name, or holds the path, or all leases of a client name:\nits files, and the first ten writers that wait for them.",
				Action:      p.connected(operands{min: 1, max: 1, names: "ID, NAME, HOLDER or PATH", local: true}, showLease),
			},
			recoverCommand(p),
			historyCommand(p),
		}, grantedCommands(p)...),
	}
}

// leaseJSON is a lease under --json.
type leaseJSON struct {
	Lease       string              `json:"lease"`
	Name        *string             `json:"name"` // of a granted lease that has one
	Holder      string              `json:"holder"`
	ClientHost  string              `json:"client_host"`
	Session     *string             `json:"session"` // not of a granted lease, as the next three
	IdleMS      int64               `json:"idle_ms"`
	SoftExpired bool                `json:"soft_expired"`
	HardExpired bool                `json:"hard_expired"`
	Files       []leaseFileJSON     `json:"files"`
	Attached    []string            `json:"attached"`
	User        string              `json:"user"`
	PID         *int64              `json:"pid"`
	FileCount   uint64              `json:"file_count"`
	Connected   *bool               `json:"connected"`
	Granted     bool                `json:"granted"`
	TTLMS       *int64              `json:"ttl_ms"`       // of a granted lease
	RemainingMS int64               `json:"remaining_ms"` // of its time to live, or until the soft limit
	AttachedCnt uint64              `json:"attached_count"`
	Waiting     *uint32             `json:"waiting"`
	OverdueMS   int64               `json:"overdue_ms"`
	State       string              `json:"state"`
	Waiters     []screen.WaiterJSON `json:"waiters"`
}

type leaseFileJSON struct {
	Path  string `json:"path"`
	Inode uint64 `json:"inode"`
	Epoch uint64 `json:"epoch"`
}

func (p *program) printLeaseJSON(l *client.Lease) error {
	j := leaseJSON{
		Lease: l.ID, Name: screen.OrNull(l.Name), Holder: l.Holder.Client, ClientHost: l.Holder.Host, Session: screen.OrNull(l.Session), IdleMS: l.Holder.Idle.Milliseconds(),
		SoftExpired: l.SoftExpired, HardExpired: l.HardExpired, Files: []leaseFileJSON{}, Attached: append([]string{}, l.Attached...),
		User: l.Holder.User, PID: screen.OrNull(l.Holder.PID), FileCount: l.FileCount,
		Granted: l.Granted, RemainingMS: l.Remaining.Milliseconds(), AttachedCnt: l.AttachedCount,
		OverdueMS: l.Overdue.Milliseconds(), State: leaseState(l), Waiters: screen.WaitersJSON(l),
	}
	if l.Granted {
		ttl := l.TTL.Milliseconds()
		j.TTLMS = &ttl
	} else {
		j.Connected, j.Waiting = &l.Connected, &l.Waiting
	}
	for _, f := range l.Files {
		j.Files = append(j.Files, leaseFileJSON(f))
	}
	return p.PrintJSON(j)
}

var leaseOrders = map[string]client.LeaseOrder{
	"": client.LeasesByID, "idle": client.LeasesByIdle, "remaining": client.LeasesByRemaining, "files": client.LeasesByFiles,
}

func leaseFilter(e *invocation) (client.LeaseFilter, error) {
	key, limit := e.flags.String("sort"), e.flags.Int("limit")
	order, ok := leaseOrders[key]
	switch {
	case !ok:
		return client.LeaseFilter{}, argv.Usagef(e.op, "--sort: %q is none of idle, remaining and files", key)
	case e.flags.IsSet("limit") && limit <= 0:
		return client.LeaseFilter{}, argv.Usagef(e.op, "--limit %d: list at least 1", limit)
	}
	return client.LeaseFilter{Holder: e.flags.String("holder"), Expired: e.flags.Bool("expired"), Order: order, Limit: limit}, nil
}

func (e *invocation) listLeases(filter client.LeaseFilter) error {
	w := e.Table()
	none := true
	for l, err := range e.fs.Leases().List(e.ctx, filter) {
		switch {
		case err != nil:
			return e.fail(err, "")
		case e.JSON:
			if err := e.printLeaseJSON(l); err != nil {
				return err
			}
			continue
		case none:
			fmt.Fprintln(w, "LEASE\tNAME\tHOLDER\tUSER\tHOST\tPID\tFILES\tIDLE\tREMAINING\tWAITING\tSTATE")
		}
		none = false
		h := l.Holder
		pid := "-"
		if h.PID != 0 {
			pid = strconv.FormatInt(h.PID, 10)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\n", l.ID, cmp.Or(l.Name, "-"), screen.QuoteName(h.Client), h.User, h.Host, pid,
			l.FileCount+l.AttachedCount, fserror.Round(h.Idle), fserror.Round(l.Remaining), l.Waiting, leaseState(l))
	}
	return w.Flush()
}

func leaseState(l *client.Lease) string {
	switch {
	case l.Ending:
		return "ending"
	case l.Granted && l.SoftExpired:
		return "expired"
	case l.Granted:
		return "granted"
	case l.HardExpired:
		return "hard"
	case l.SoftExpired:
		return "soft"
	}
	return "live"
}

func showLease(e *invocation) error {
	what := e.args[0]
	if what == "" {
		return argv.Usagef(e.op, "ID, NAME, HOLDER or PATH is empty")
	}
	lease := what
	if id, err := e.fs.Leases().Find(e.ctx, what); err == nil {
		lease = id.String()
	}
	filters := []client.LeaseFilter{{Lease: lease}, {Holder: what}}
	if strings.HasPrefix(what, "/") {
		path, err := e.path(what)
		if err != nil {
			return err
		}
		filters = []client.LeaseFilter{{Path: path}}
	}
	for _, filter := range filters {
		found := false
		for l, err := range e.fs.Leases().List(e.ctx, filter) {
			if kind := fserror.KindOf(err); err != nil && (kind == fserror.NotFound || kind == fserror.InvalidArgument) && filter.Path == "" {
				break // not of this kind
			}
			if err != nil {
				return e.fail(err, what)
			}
			found = true
			if err := e.printLease(l); err != nil {
				return err
			}
		}
		if found {
			return nil
		}
	}
	return fserror.New(fserror.NotFound, e.op, what, "there is no such lease (leasefs lease ls lists all)")
}

func (p *program) printLease(l *client.Lease) error {
	if p.JSON {
		return p.printLeaseJSON(l)
	}
	h := l.Holder
	if l.Granted {
		p.Printf("lease %s: granted to %s (user %s, host %s)\n", strings.TrimSpace(l.ID+" "+l.Name), screen.QuoteName(h.Client), h.User, h.Host)
		p.Printf("  %s, %s left of %s; %s attached\n", leaseState(l), fserror.Round(l.Remaining), l.TTL, screen.Plural(l.AttachedCount, "file", "files"))
		for _, path := range l.Attached {
			p.Printf("  %s  deleted at its end\n", p.Name(path))
		}
		if n := uint64(len(l.Attached)); n < l.AttachedCount {
			p.Printf("  and %d more\n", l.AttachedCount-n)
		}
		return nil
	}
	connected := map[bool]string{true: "connected", false: "disconnected"}[l.Connected]
	p.Printf("lease %s: %s (user %s, host %s, pid %d), session %s, %s\n", l.ID, screen.QuoteName(h.Client), h.User, h.Host, h.PID, l.Session, connected)
	p.Printf("  %s, idle %s, %s; %s open, %s waiting\n", leaseState(l), fserror.Round(h.Idle), takeable(l), screen.Plural(l.FileCount, "file", "files"), screen.Plural(uint64(l.Waiting), "writer", "writers"))
	for _, f := range l.Files {
		p.Printf("  %s  inode %d, epoch %d\n", p.Name(f.Path), f.Inode, f.Epoch)
	}
	if n := uint64(len(l.Files)); n < l.FileCount {
		p.Printf("  and %d more\n", l.FileCount-n)
	}
	p.PrintWaiters(l)
	return nil
}

// takeable says when others can take the files of a session's lease.
func takeable(l *client.Lease) string {
	switch {
	case l.Overdue > 0:
		return "past its hard limit for " + fserror.Round(l.Overdue).String() + ", about to be closed"
	case l.SoftExpired:
		return "can be taken now"
	}
	return "can be taken in " + fserror.Round(l.Remaining).String()
}

func historyCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "history",
		Usage:     "show who held a file or a granted lease, and why that ended",
		UsageText: "leasefs lease history [--since WHEN] [--limit N] PATH | --holder H | --lease ID|NAME\n\nExample:\n  leasefs lease history --since 24h /logs/a",
		Description: "Lists who holds it now, then who held it, the last end first: from when to when, and why that\n" +
			"ended (closed, taken over, deleted, replaced; recovered past the soft limit or the hard limit, forced,\n" +
			"or by the same client; of granted leases and their files, expired or revoked), and by whom. With PATH\n" +
			"it is the file that is there, and those that had that path when they were closed. What the namenode\n" +
			"did not see is listed as not known.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "holder", Usage: "what the client `NAME` or session held"},
			&cli.StringFlag{Name: "lease", Usage: "who had the granted lease `ID|NAME`"},
			&cli.StringFlag{Name: "since", Usage: "nothing that ended before `WHEN`: so long ago, as 36h, or a time in RFC 3339", DefaultText: "all that is kept"},
			&cli.IntFlag{Name: "limit", Usage: "only the first `N`", DefaultText: "all"},
		},
		Action: reading(p, operands{max: 1, names: "PATH"}, historyFilter, func(e *invocation, f history.Filter) error {
			return e.fail(leasehistory.Print(e.ctx, e.fs, &e.Printer, f), f.Path)
		}),
	}
}

func historyFilter(e *invocation) (f history.Filter, err error) {
	f = history.Filter{Holder: e.flags.String("holder"), Lease: e.flags.String("lease"), Limit: e.flags.Int("limit")}
	named := len(e.args)
	for _, what := range []string{"holder", "lease"} {
		if e.flags.IsSet(what) {
			named++
		}
	}
	switch {
	case named != 1 || len(e.args) == 0 && f.Holder+f.Lease == "":
		return f, argv.Usagef(e.op, "name one of PATH, --holder H and --lease ID|NAME")
	case e.flags.IsSet("limit") && f.Limit <= 0:
		return f, argv.Usagef(e.op, "--limit %d: list at least 1", f.Limit)
	case len(e.args) == 1:
		f.Path = e.args[0]
	}
	if f.Since, err = leasehistory.Since(e.flags.String("since"), time.Now()); err != nil {
		return f, argv.Usagef(e.op, "--since: %v", err)
	}
	return f, nil
}

func recoverCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "recover",
		Usage:     "close abandoned files at their flushed length",
		UsageText: "leasefs lease recover [--force] [--wait D] PATH...\n\nExample:\n  leasefs lease recover --wait 2m /logs/a",
		Description: "Closes files whose holders are past the soft limit, under a new epoch: no flushed byte is lost,\n" +
			"and the old holder can write no more. A live holder's file is refused (exit code 5) unless\n" +
			"--force is given. A file that is closed already is no error.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "even if the holder is alive"},
			&cli.DurationFlag{Name: "wait", Usage: "wait up to `LONG` until the holder lapses or closes", DefaultText: "not at all"},
		},
		Action: p.connected(operands{min: 1, max: -1, names: "one path or more"}, func(e *invocation) error {
			deadline := time.Now().Add(e.flags.Duration("wait"))
			return e.each(func(path string) error { return e.recover(path, deadline) })
		}),
	}
}

// recoverPause is how often a live holder's file is tried again.
const recoverPause = 500 * time.Millisecond

func (e *invocation) recover(path string, deadline time.Time) error {
	for {
		res, err := e.fs.Recover(e.ctx, path, e.flags.Bool("force"))
		if err == nil {
			return e.recovered(path, res)
		}
		left := time.Until(deadline)
		if fserror.KindOf(err) != fserror.Held || left <= 0 {
			return e.fail(err, path)
		}
		if err := e.pause(min(left, recoverPause)); err != nil {
			return err
		}
	}
}

func (e *invocation) recovered(path string, res client.RecoverResult) error {
	how := fmt.Sprintf("was closed already, %d bytes", res.Length)
	if res.WasOpen {
		how = fmt.Sprintf("closed at %d bytes, epoch %d", res.Length, res.Epoch)
	}
	return e.Summary(map[string]any{"path": path, "was_open": res.WasOpen, "length": res.Length, "epoch": screen.OrNull(res.Epoch)}, "%s: %s\n", e.Name(path), how)
}
