// Package leasehistory shows what the command lease history finds.
package leasehistory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/leasehistory"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
)

// Since reads a time: how long ago, as 36h, or RFC 3339. Empty is none.
func Since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither how long ago, as 36h, nor a time, as 2006-01-02T15:04:05Z", text)
}

// spanJSON is a span under --json. All but its times are null of one of which nothing is known.
type spanJSON struct {
	TxID    *uint64  `json:"txid"` // null: it has not ended
	From    string   `json:"from"`
	To      *string  `json:"to"`
	Unknown bool     `json:"unknown"`
	Path    *string  `json:"path"`
	Inode   *uint64  `json:"inode"`
	Epoch   *uint64  `json:"epoch"`
	Lease   *string  `json:"lease"`
	Name    *string  `json:"name"`
	Holder  *string  `json:"holder"`
	User    *string  `json:"user"`
	Host    *string  `json:"client_host"`
	PID     *int64   `json:"pid"`
	Session *string  `json:"session"`
	Reason  *string  `json:"reason"`
	By      *WhoJSON `json:"by"`
}

// WhoJSON is a client under --json.
type WhoJSON struct {
	User   string  `json:"user"`
	Holder *string `json:"holder"`
	Host   *string `json:"client_host"`
}

// WhoOf is a client under --json; nil if there is none.
func WhoOf(h *client.Holder) *WhoJSON {
	if h == nil {
		return nil
	}
	return &WhoJSON{h.User, screen.OrNull(h.Client), screen.OrNull(h.Host)}
}

// who is a client in words.
func who(h *client.Holder) string {
	text := ""
	if h.Client != "" {
		text = screen.QuoteName(h.Client) + " "
	}
	text += "(user " + h.User
	if h.Host != "" {
		text += ", host " + h.Host
	}
	return text + ")"
}

// Print prints who held what is looked for.
func Print(ctx context.Context, fs *client.FS, p *screen.Printer, f leasehistory.Filter) error {
	w := p.Table()
	none := true
	about, err := leasehistory.Read(ctx, fs, f, func(s *leasehistory.Span) error {
		if p.JSON {
			return p.PrintJSON(jsonOf(s))
		}
		if none {
			fmt.Fprintln(w, "FROM\tTO\tHOLDER\tUSER\tHOST\tPID\tHELD\tENDED")
		}
		none = false
		to := "-"
		if s.TxID != 0 {
			to = s.To.Format(time.DateTime)
		}
		if s.Unknown {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t-\t-\tnot known: the namenode was away\n", s.From.Format(time.DateTime), to)
			return nil
		}
		what := p.Name(s.Path)
		switch {
		case s.Lease != "":
			what = "lease " + s.Lease
			if s.Name != "" {
				what += " " + s.Name
			}
		case s.Path == "":
			what = fmt.Sprintf("inode %d", s.Inode)
		}
		pid := "-"
		if s.Holder.PID != 0 {
			pid = strconv.FormatInt(s.Holder.PID, 10)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.From.Format(time.DateTime), to, screen.QuoteName(s.Holder.Client), s.Holder.User, s.Holder.Host, pid, what, ended(s))
		return nil
	})
	if err = errors.Join(err, w.Flush()); err != nil {
		return err
	}
	if about.Problem != "" {
		p.Note("warning: the namenode cannot write the history of leases, so the latest may be missing: %s", about.Problem)
	}
	if !p.Quiet {
		p.Note("what ended before %s is not kept", about.KeptFrom.Format(time.DateTime))
	}
	return nil
}

// ended is why a span ended.
func ended(s *leasehistory.Span) string {
	if s.TxID == 0 {
		return "held now"
	}
	return Ended(s.Why, s.By)
}

// Ended is why something ended, and by whom, who may be nil, in words.
func Ended(why string, by *client.Holder) string {
	if by != nil {
		return why + " by " + who(by)
	}
	return why
}

func jsonOf(s *leasehistory.Span) spanJSON {
	j := spanJSON{TxID: screen.OrNull(s.TxID), From: s.From.UTC().Format(screen.TimeJSON), Unknown: s.Unknown}
	if s.TxID != 0 {
		to := s.To.UTC().Format(screen.TimeJSON)
		j.To = &to
	}
	if s.Unknown {
		return j
	}
	h := s.Holder
	j.Path, j.Inode, j.Epoch, j.Lease, j.Name = screen.OrNull(s.Path), screen.OrNull(s.Inode), screen.OrNull(s.Epoch), screen.OrNull(s.Lease), screen.OrNull(s.Name)
	j.Holder, j.User, j.Host, j.PID, j.Session = &h.Client, &h.User, &h.Host, screen.OrNull(h.PID), screen.OrNull(s.Session)
	j.Reason, j.By = screen.OrNull(s.Why), WhoOf(s.By)
	return j
}
