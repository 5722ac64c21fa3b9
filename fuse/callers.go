package fuse

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// nobody is whose is what somebody makes of whom nothing is known.
const nobody = "nobody"

// callers says for whom the mount makes a call. In a mount that lets other users in, that
// is who asks: the namenode checks what each may, and the kernel nothing.
type callers struct {
	each   bool // else all is for the client's user
	squash bool // root is nobody
	groups bool // the groups of processes are sent
	own    string
	ids    *ids
	none   *lowlevel.Caller
	self   *lowlevel.Caller // the client's user, if each

	mu    sync.Mutex
	since time.Time
	users map[uint32]*lowlevel.Caller // without groups
	told  map[string]bool             // for whom no rule lets the mount act; by mu, too
}

// setUser is called when the client's user is known.
func (c *callers) setUser(o Options, own string, i *ids) {
	c.each, c.groups, c.own, c.ids = o.AllowOther, o.ProcessGroups, own, i
	c.none = lowlevel.NewCaller(nobody, nil, true)
	if c.each {
		c.self = lowlevel.OwnCaller(own)
	}
	root, _ := i.named(0)
	if c.squash = own != root; o.RootSquash != nil {
		c.squash = *o.RootSquash
	}
}

// of is who makes a request; nil: the client's user.
func (c *callers) of(raw context.Context) *lowlevel.Caller {
	if !c.each {
		return nil
	}
	who, ok := fuse.FromContext(raw)
	if !ok {
		return nil
	}
	user := c.user(who.Uid)
	if !c.groups || user == nil || user.Nobody {
		return user
	}
	return lowlevel.NewCaller(user.User, c.groupsOf(who), false)
}

func (c *callers) user(uid uint32) *lowlevel.Caller {
	if c.ids.asUID != nil && *c.ids.asUID == uid {
		return nil
	}
	if uid == 0 && c.squash {
		return c.none
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.users == nil || now.Sub(c.since) > idsFresh {
		c.since, c.users, c.told = now, make(map[uint32]*lowlevel.Caller), make(map[string]bool)
	}
	return remembered(c.users, uid, func() *lowlevel.Caller {
		switch name, ok := c.ids.named(uid); {
		case !ok:
			return c.none
		case name == c.own:
			return nil
		default:
			return lowlevel.NewCaller(name, nil, false)
		}
	})
}

// groupsOf are the groups of the process that makes a request, as far as they have names and
// can be seen.
func (c *callers) groupsOf(who *fuse.Caller) []string {
	groups := []string{}
	add := func(gid uint32) {
		if name, ok := c.ids.groupNamed(gid); ok && !slices.Contains(groups, name) {
			groups = append(groups, name)
		}
	}
	add(who.Gid)
	for _, gid := range groupsOf(who.Pid) {
		add(gid)
	}
	return groups
}

// groupsOf are the supplementary groups of a thread; none if they cannot be seen.
func groupsOf(thread uint32) (gids []uint32) {
	buf := make([]byte, 64<<10)
	status := readProc(procOf(thread)+"/status", buf)
	if thread == 0 || len(status) == len(buf) { // there may be more
		return nil
	}
	for _, text := range strings.Fields(field(status, "Groups")) {
		if gid, err := strconv.ParseUint(text, 10, 32); err == nil {
			gids = append(gids, uint32(gid))
		}
	}
	return gids
}

// group is the group that what a request makes has by a disk's rules, as a wish: the
// namenode gives it if it knows who asks as a member.
func (c *callers) group(raw context.Context) client.Owner {
	who, ok := fuse.FromContext(raw)
	if !ok || c.of(raw) == nil {
		return client.Owner{}
	}
	if c.ids.asGID != nil && *c.ids.asGID == who.Gid {
		return client.Owner{}
	}
	name, _ := c.ids.groupNamed(who.Gid)
	return client.Owner{Group: name}
}

// may returns 0 if who makes the request of ctx has the permission bits want on a node. Where the
// kernel checks, it has.
func may(ctx context.Context, n *node, want uint32) syscall.Errno {
	if !n.m.callers.each {
		return 0
	}
	err := n.m.fs.Access(ctx, lowlevel.Inode(n.ino), want)
	n.m.tellNoRule(ctx, err)
	return inodeErrno(err)
}

// Access is access(2) and chdir(2), where the kernel does not check itself.
func (n *node) Access(ctx context.Context, mask uint32) syscall.Errno {
	ctx, end := n.m.op(ctx)
	defer end()
	if e := n.settleNode(ctx); e != 0 {
		return e
	}
	return may(ctx, n, mask&(lowlevel.MayRead|lowlevel.MayWrite|lowlevel.MayExecute))
}

// tellNoRule logs that the mount may not act for somebody: once for each in a while.
func (m *Mounted) tellNoRule(ctx context.Context, err error) {
	if fserror.ReasonOf(err) != fserror.ReasonProxy {
		return
	}
	c := &m.callers
	who := c.own
	if as := lowlevel.CallerOf(ctx); as != nil {
		who = as.User
	}
	c.mu.Lock()
	first := !c.told[who]
	if c.told != nil {
		c.told[who] = true
	}
	c.mu.Unlock()
	if first {
		m.log.Warn("leasefs: the mount may not act for a user of this machine, who is refused everything", "user", who, "err", err)
	}
}
