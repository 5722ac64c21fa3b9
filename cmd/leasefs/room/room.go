// Package room is what leasefs status tells of what is nearly used up: by namenodes, and in
// directories with a quota; and what callers hold of what all share.
package room

import (
	"fmt"
	"strconv"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/quota"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
)

const (
	// What will be full within soon is shown, and what is full to the part nearly, whether it
	// grows or not.
	soon   = 30 * 24 * time.Hour
	nearly = 0.9
)

// Report is what leasefs status --json tells of it.
type Report struct {
	Rooms  []roomJSON   `json:"rooms"`  // what there is only so much of; what is used up first comes first
	Quotas []quota.JSON `json:"quotas"` // to superusers: the fullest, at most ten, that have 90 % or more of a limit in use
	Greedy []Held       `json:"greedy"` // to superusers: who holds much of what all share, or was refused more
}

type roomJSON struct {
	Resource string `json:"resource"`
	Used     int64  `json:"used"`
	Limit    int64  `json:"limit"`
	FullMS   *int64 `json:"full_ms"` // when it is used up, from now; null: it does not grow, or is less than half full
	Refused  string `json:"refused"` // what is refused then
}

// ReportOf is that of a namenode.
func ReportOf(s *client.NamenodeStatus) Report {
	out := Report{Rooms: []roomJSON{}, Quotas: []quota.JSON{}, Greedy: HeldOf(s.Greedy)}
	for _, r := range s.Rooms {
		j := roomJSON{Resource: r.Resource, Used: r.Used, Limit: r.Limit, Refused: r.Refused}
		if r.Full != nil {
			ms := r.Full.Milliseconds()
			j.FullMS = &ms
		}
		out.Rooms = append(out.Rooms, j)
	}
	for i := range s.Quotas {
		out.Quotas = append(out.Quotas, quota.JSONOf(s.Quotas[i]))
	}
	return out
}

// Tables tells people what is nearly used up, and who is greedy, if anything is and anybody.
func Tables(p *screen.Printer, list []client.NamenodeStatus) error {
	w := p.Table()
	head := func(line string, shown *bool) {
		if !*shown {
			fmt.Fprintln(w, line)
		}
		*shown = true
	}
	var rooms, quotas bool
	for i := range list {
		for _, r := range list[i].Rooms {
			part := float64(r.Used) / float64(r.Limit)
			if r.Full == nil && part < nearly || r.Full != nil && *r.Full > soon {
				continue
			}
			head("\nFULLEST\tAT\tUSED\tOF\t\tFULL IN\tREFUSED THEN", &rooms)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.0f%%\t%s\t%s\n", r.Resource, list[i].Address, amount(r.Resource, r.Used), amount(r.Resource, r.Limit), 100*part, in(r.Full), r.Refused)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	w = p.Table()
	for i := range list {
		for _, q := range list[i].Quotas {
			head("\nFULL QUOTAS\n"+quota.Heading, &quotas)
			fmt.Fprintln(w, quota.Row(q, true, p.Name(q.Path)))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return greedyTable(p, list)
}

// bytes are the resources that are counted in bytes.
var bytes = map[string]bool{"memory": true, "disk": true, "store": true, "zookeeper": true, "tails": true}

func amount(resource string, n int64) string {
	if bytes[resource] {
		return screen.Size(n, true)
	}
	return strconv.FormatInt(n, 10)
}

// in is a time until something is full, for people.
func in(full *time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case full == nil:
		return "-"
	case *full == 0:
		return "now"
	case *full >= 2*day:
		return fmt.Sprintf("%dd", *full/day)
	case *full >= 2*time.Hour:
		return fmt.Sprintf("%dh", *full/time.Hour)
	}
	return fmt.Sprintf("%dm", max(1, *full/time.Minute))
}
