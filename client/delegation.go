package client

import (
	"cmp"
	"context"

	"github.com/leasefs/leasefs/internal/delegation"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/readcache"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Here the client and package delegation meet: creates ask its Table and tell it,
// lookups ask the filters of names, and a draft sends its Create through delegating.

func newDelegations(f *engine) *delegation.Table[*Writer] {
	return delegation.New(delegation.Config[*Writer]{
		Client: delegating{f}, IDs: f.ids, Umask: filemode.Unix(*f.cfg.Umask),
	})
}

// sendCreate sends a Create of what is no draft.
func (f *engine) sendCreate(ctx context.Context, c *namecall.Call, r door.Ref, req *pb.CreateRequest, resp *pb.OpenResponse) error {
	if f.cache == nil {
		return f.nn.Do(ctx, c, pb.Namenode_Create_FullMethodName, req, resp)
	}
	dir, name := r.Split()
	if dir.Path != "" {
		d, _, _ := f.dirOf(whose(req.GetCaller()), r)
		dir = door.Inode(d.GetInode())
	}
	var g *givenUp
	if dir.Base != 0 {
		g = f.giveUpName(dir.Base, name)
		if f.delegations.Begun(dir.Base, name) { // asked when none can begin any more
			g.settle(c, nil)
			return fserror.New(fserror.Held, c.Op, c.Path, "this client process makes the file just now")
		}
	}
	req.Cache = g != nil
	if g != nil && f.cfg.Drafts {
		f.delegations.Ask(req)
	}
	err := f.sendGiven(ctx, c, g, r, req, resp)
	if err != nil {
		resp = nil
	}
	f.delegations.Answered(req, resp)
	return err
}

// sendGiven sends a Create for which g was given up, and keeps what its answer says.
func (f *engine) sendGiven(ctx context.Context, c *namecall.Call, g *givenUp, r door.Ref, req *pb.CreateRequest, resp *pb.OpenResponse) error {
	req.GivenUp = g.wire()
	err := f.nn.Do(ctx, c, pb.Namenode_Create_FullMethodName, req, resp)
	if err == nil {
		g.keepCreate(whose(req.GetCaller()), r, resp)
	}
	g.settle(c, err)
	return err
}

// giveUpName gives up what the making of a name changes, and more. The name is added to
// the directory's filter after that: the entries are given up, so no filter without
// the name can replace this one.
func (f *engine) giveUpName(dir uint64, name string, more ...readcache.Key) *givenUp {
	g := f.giveUp(append([]readcache.Key{
		{Kind: keyName, Inode: dir, Name: name}, {Kind: keyEntries, Inode: dir}, {Kind: keyDelegation, Inode: dir},
	}, more...)...)
	f.names(dir).Add(name)
	return g
}

// begunIn are the drafts that the acknowledgement of a revocation names.
func (f *engine) begunIn(r Revocation) []*pb.Draft {
	return f.delegations.Recalled(r.All, r.delegations)
}

// dirOf is the directory of what a reference names, as far as it is known: that it is
// one, and may be searched.
func (a *answers) dirOf(as string, r door.Ref) (dir *pb.Attr, name string, ok bool) {
	d, name := r.Split()
	v, ok := a.kept(stat(as, d))
	return v.attr, name, ok && name != "" && v.attr.GetType() == pb.FileType_FILE_TYPE_DIRECTORY
}

// absent reports whether a name is surely not there, by the filter of its directory.
func (a *answers) absent(ctx context.Context, r door.Ref) bool {
	d, name, ok := a.dirOf(asOf(ctx), r)
	if !ok || !mayIn(ctx, d, door.MayExecute) {
		return false
	}
	v, ok := a.kept(readKey{kind: readNames, at: door.Inode(d.GetInode())})
	return ok && !v.names.Has(name)
}

// seenAbsent begins a filter for the directory of a name that the namenode has just
// called absent, if the directory is empty. The ticket is from before that call.
func (a *answers) seenAbsent(ticket readcache.Ticket, k readKey) {
	d, _, ok := a.dirOf(k.as, k.at)
	if !ok || d.GetEntries() != 0 {
		return
	}
	// By inode: a directory may be known by several paths. Its attributes say who
	// may search it.
	id := d.GetInode()
	a.cache.Put(ticket, readKey{kind: readNames, at: door.Inode(id)}, kept{names: delegation.NewNames()},
		[]readcache.Key{{Kind: keyEntries, Inode: id}, {Kind: keyAttr, Inode: id}})
}

// names is the filter of a directory, nil if there is none.
func (a *answers) names(dir uint64) *delegation.Names {
	v, _ := a.cache.Peek(readKey{kind: readNames, at: door.Inode(dir)})
	return v.names
}

// keepDelegation keeps the delegation of a directory, if the answer to a create brings it.
func (g *givenUp) keepDelegation(resp *pb.OpenResponse) {
	if g != nil && resp.GetCreations() {
		dir := resp.GetParent().GetInode()
		g.of.Keep(readKey{kind: readDelegation, at: door.Inode(dir)}, kept{}, []readcache.Key{{Kind: keyDelegation, Inode: dir}})
	}
}

// delegating is the client as package delegation sees it.
type delegating struct{ *engine }

func (f delegating) Delegated(dir uint64) bool {
	_, ok := f.kept(readKey{kind: readDelegation, at: door.Inode(dir)})
	return ok
}

func (f delegating) Absent(ctx context.Context, r door.Ref) bool {
	v, ok := f.kept(stat(asOf(ctx), r))
	return ok && v.missing != nil || f.absent(ctx, r)
}

func (f delegating) Names(dir uint64) *delegation.Names { return f.names(dir) }

func (f delegating) MaxWhole() int64 { return f.about().MaxWholeFile }

func (f delegating) Linger(ctx context.Context) (context.Context, context.CancelFunc) {
	return lingering(ctx)
}

func (f delegating) Create(ctx context.Context, path string, req *pb.CreateRequest) (asBlock bool, err error) {
	c := namecall.Call{Op: "create", Path: path, Mutates: true, TailToo: len(req.GetData()) > 0}
	err = f.send(ctx, &c, req, new(pb.OpenResponse))
	return c.TailToo && tailRefused(err), err
}

func (f delegating) Open(ctx context.Context, path string, req *pb.CreateRequest) (w *Writer, err error) {
	waits, c := f.nn.Endless("create", path), namecall.Call{Op: "create", Path: path, Mutates: true}
	err = waits.Try(ctx, func() error {
		resp := new(pb.OpenResponse)
		asked := f.session.Now()
		err := f.send(ctx, &c, req, resp)
		if err == nil {
			w, err = f.newWriter(ctx, "create", path, resp, asked, 0)
		}
		return err
	})
	f.giveback.Opening(&c, req.Call, err)
	return w, err
}

// send sends the Create of a draft.
func (f delegating) send(ctx context.Context, c *namecall.Call, req *pb.CreateRequest, resp *pb.OpenResponse) error {
	r := door.Ref{Base: req.GetAt().GetBase(), Path: req.GetAt().GetPath()}
	var own []readcache.Key
	if as := req.GetAs(); as != 0 {
		own = append(own, readcache.Key{Kind: keyAttr, Inode: as})
	}
	g := f.giveUpName(r.Base, r.Path, own...)
	return f.sendGiven(ctx, c, g, r, req, resp)
}

func (f lowLevel) Draft(ctx context.Context, r door.Ref, path string, opts ...OpenOption) (*delegation.Draft[*Writer], bool) {
	r, err := cleanRef("create", r)
	if err != nil || f.cache == nil || !f.cfg.Drafts {
		return nil, false
	}
	dir, name, ok := f.dirOf(asOf(ctx), r)
	if !ok || dir.GetAcl()&2 != 0 || !mayIn(ctx, dir, door.MayWrite|door.MayExecute) || f.mayOpen("create", r.Path) != nil { // what a directory has its files inherit, the namenode says
		return nil, false
	}
	o := gather(opts)
	return f.delegations.NewDraft(ctx, delegation.File{
		Caller: f.by(ctx), Dir: dir, Name: name, At: r, Path: cmp.Or(path, r.Path), Mode: filemode.Unix(o.mode &^ o.less), HasMode: o.hasMode, Owner: o.owner.wire(),
	})
}

func (f lowLevel) DraftInfo(d *delegation.Draft[*Writer]) *FileInfo {
	return fileInfo(d.Path(), d.Attr())
}
