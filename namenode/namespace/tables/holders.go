package tables

import (
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// Holder is who a file open for write belongs to.
type Holder struct {
	User    string
	Client  string // client name
	Session SessionID
	Host    string
	PID     int64
	// TTL is the session's own soft limit in milliseconds; 0: the namenode's.
	TTL int64
}

// ForError is the holder as errors name it.
func (h *Holder) ForError() *fserror.Holder {
	return &fserror.Holder{User: h.User, Client: h.Client, Host: h.Host, PID: h.PID}
}

// Code is the layout of a holder.
func (h *Holder) Code(c *codec.Coder) {
	c.Text(&h.User)
	c.Text(&h.Client)
	c.Raw((*[16]byte)(&h.Session))
	c.Text(&h.Host)
	c.I64(&h.PID)
	c.I64(&h.TTL)
}

// CodeOpen is the layout of the holder of an open file in an image.
func (h *Holder) CodeOpen(c *codec.Coder) {
	c.Raw((*[16]byte)(&h.Session))
	c.I64(&h.PID)
	c.Text(&h.User)
	c.Text(&h.Client)
	c.Text(&h.Host)
	c.I64(&h.TTL)
}

// Holders has the latest holders, so that the open files of one session share one.
// It is no state: what it has forgotten is merely not shared.
type Holders map[SessionID]*Holder

// Share returns a holder equal to h.
func (t *Holders) Share(h Holder) *Holder {
	if s := (*t)[h.Session]; s != nil && *s == h {
		return s
	}
	if *t == nil || len(*t) >= 1<<16 {
		*t = make(Holders)
	}
	h.User, h.Client, h.Host = strings.Clone(h.User), strings.Clone(h.Client), strings.Clone(h.Host)
	(*t)[h.Session] = &h
	return &h
}
