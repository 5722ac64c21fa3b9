package screen

import (
	"fmt"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
)

// PrintStat prints what is known about a file.
func (p *Printer) PrintStat(i *client.FileInfo) {
	row := func(key, format string, args ...any) { p.Printf("%8s: %s\n", key, fmt.Sprintf(format, args...)) }
	row("path", "%s", p.Name(i.Path))
	row("type", "%s", TypeName(i.Mode()))
	if i.LinkTarget != "" {
		row("target", "%s", p.Name(i.LinkTarget))
	}
	if i.IsDir() {
		row("entries", "%d", i.Entries)
	} else {
		row("length", "%d (%s, %d in the tail)", i.Length, Plural(i.Blocks, "block", "blocks"), i.TailLength)
	}
	row("mode", "%s (%s%s)", filemode.Format(i.Mode()), ModeString(i.Mode()), ACLMark(i))
	if what := ACLs(i); what != "" {
		row("acl", "%s", what)
	}
	row("owner", "%s:%s", i.User, i.Group)
	row("mtime", "%s", i.ModTime().Local().Format("2006-01-02 15:04:05.000 -0700"))
	row("inode", "%d", i.Inode)
	row("txid", "%d", i.TxID)
	if i.Lease != 0 {
		row("attached", "to granted lease %s: deleted when that ends", i.Lease)
	}
	open := i.Open
	if open == nil {
		if i.Mode().IsRegular() {
			row("open", "no")
		}
		return
	}
	h := open.Holder
	row("open", "by %s (user %s, host %s, pid %d) for %s", QuoteName(h.Client), h.User, h.Host, h.PID, fserror.Round(h.Since))
	row("epoch", "%d", open.Epoch)
	state := "can be taken in " + fserror.Round(open.TakeableIn).String()
	if open.SoftExpired {
		state = "can be taken now"
	}
	row("lease", "idle %s, %s", fserror.Round(h.Idle), state)
}
