package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/readcache"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxDraft is how many bytes a draft takes.
	maxDraft = 64 << 10
	// fewNumbers is how many inode numbers are left when more are asked for.
	fewNumbers = 256
)

// drafts are the files of a client that are begun and not made. See
// docs/adr/0013-creations-of-ones-own.md.
type drafts struct {
	mu      sync.Mutex
	begun   map[uint64]map[string]*Draft // by directory and name
	numbers []numbers
	left    int  // in numbers
	asking  bool // for more: one call at a time
}

// numbers are inode numbers that are set aside for this session.
type numbers struct {
	first uint64
	n     uint32
}

// Draft is a new file that nobody else sees, and that this client has made no
// call for yet: it holds the right to make files in the directory, so that
// another who wants the name is told that it is held. It becomes a file with
// Close, or a Writer with Open, of which one must be called, once. Not safe for
// concurrent use, but for Open and Close, of which the first one counts.
type Draft struct {
	fs    *engine
	path  string
	name  string
	group string // the directory's
	begun time.Time
	dir   uint64
	inode uint64
	opts  openOptions

	mu    sync.Mutex
	data  []byte
	ended bool
}

func (f lowLevel) Draft(r door.Ref, path string, opts ...OpenOption) (*Draft, bool) {
	r, err := cleanRef("create", r)
	if err != nil || f.cache == nil || !f.cfg.Drafts {
		return nil, false
	}
	o := gather(opts)
	dir, name, ok := f.dirOf(r)
	if !ok || f.mayOpen("create", r.Path) != nil {
		return nil, false
	}
	d := &Draft{fs: f.engine, path: cmp.Or(path, r.Path), name: name, group: dir.GetGroup(), begun: time.Now().Truncate(time.Millisecond), dir: dir.GetInode(), opts: openOptions{mode: o.mode, hasMode: o.hasMode, owner: o.owner}}
	return d, f.drafts.begin(f.engine, d, r)
}

// begin notes a draft. Under the lock the right is looked for: once a revocation
// has taken that away, the acknowledgement names all that were begun before.
func (t *drafts) begin(f *engine, d *Draft, r door.Ref) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, mine := f.kept(readKey{readCreations, door.Inode(d.dir)}); !mine || t.left == 0 || t.begun[d.dir][d.name] != nil {
		return false
	}
	if v, ok := f.kept(stat(r)); !(ok && v.missing != nil) && !f.absent(r) {
		return false
	}
	d.inode = t.numbers[0].first
	t.left--
	t.numbers[0].first++
	if t.numbers[0].n--; t.numbers[0].n == 0 {
		t.numbers = t.numbers[1:]
	}
	if t.begun == nil {
		t.begun = make(map[uint64]map[string]*Draft)
	}
	if t.begun[d.dir] == nil {
		t.begun[d.dir] = make(map[string]*Draft)
	}
	t.begun[d.dir][d.name] = d
	f.willMake(d.dir, d.name)
	return true
}

// has reports whether there is a draft of a name.
func (t *drafts) has(dir uint64, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun[dir][name] != nil
}

func (t *drafts) end(d *Draft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.begun[d.dir], d.name)
	if len(t.begun[d.dir]) == 0 {
		delete(t.begun, d.dir)
	}
}

// add takes in numbers that were set aside.
func (t *drafts) add(first uint64, n uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > 0 {
		t.numbers = append(t.numbers, numbers{first, n})
		t.left += int(n)
	}
}

// forgetNumbers drops all numbers, which the namenode may have forgotten.
func (t *drafts) forgetNumbers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.numbers, t.left = nil, 0
}

// ask reports whether the next call is to ask for numbers: few are left, and no
// other asks. If so asked has to follow.
func (t *drafts) ask() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking || t.left >= fewNumbers {
		return false
	}
	t.asking = true
	return true
}

func (t *drafts) asked() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking = false
}

// in are the drafts in the directories whose creations are among keys.
func (t *drafts) in(r Revocation) (out []*pb.Draft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.begun) == 0 {
		return nil
	}
	add := func(names map[string]*Draft) {
		for _, d := range names {
			out = append(out, &pb.Draft{Dir: d.dir, Name: d.name, Inode: d.inode})
		}
	}
	if r.All {
		for _, names := range t.begun {
			add(names)
		}
	}
	for _, dir := range r.creations {
		add(t.begun[dir])
	}
	return out
}

// askCreations asks, with a Create, for the right to the directory's creations.
func (f *engine) askCreations(g *givenUp, req *pb.CreateRequest) {
	if f.cfg.Drafts && g != nil {
		req.Creations, req.Numbers = true, f.drafts.ask()
	}
}

// keepCreations keeps what the answer to that said.
func (f *engine) keepCreations(g *givenUp, resp *pb.OpenResponse) {
	if !resp.GetCreations() {
		return
	}
	f.drafts.add(resp.GetFirstInode(), resp.GetInodes())
	dir := resp.GetParent().GetInode()
	g.of.Put(readKey{readCreations, door.Inode(dir)}, kept{}, []readcache.Key{{Kind: keyCreations, Inode: dir}})
}

// Path is the path under which the draft was begun, for errors.
func (d *Draft) Path() string { return d.path }

// Name is its name in the directory.
func (d *Draft) Name() string { return d.name }

// Inode is the number that the file will have.
func (d *Draft) Inode() uint64 { return d.inode }

// Dir is the number of its directory.
func (d *Draft) Dir() uint64 { return d.dir }

// Begun is when it was begun, in whole milliseconds.
func (d *Draft) Begun() time.Time { return d.begun }

// Length is how many bytes were written.
func (d *Draft) Length() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(len(d.data))
}

// Info is what the file will be like if it is made now.
func (d *Draft) Info() *FileInfo {
	mode := modeToWire(d.opts.mode)
	if !d.opts.hasMode {
		mode = 0o644
	}
	return fileInfo(d.path, &pb.Attr{
		Inode: d.inode, Type: pb.FileType_FILE_TYPE_FILE, Mode: mode,
		User: cmp.Or(d.opts.owner.User, d.fs.about().User), Group: cmp.Or(d.opts.owner.Group, d.group),
		MtimeUnixMs: d.begun.UnixMilli(), Length: d.Length(),
	})
}

// Write appends the pieces, or none of them: false if they are too many for a
// draft (64 KiB in all), or it has ended. Then Open it.
func (d *Draft) Write(pieces [][]byte) bool {
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended || len(d.data)+n > maxDraft || int64(len(d.data)+n) > d.fs.about().MaxWholeFile {
		return false
	}
	for _, p := range pieces {
		d.data = append(d.data, p...)
	}
	return true
}

// finish ends the draft for whoever is first.
func (d *Draft) finish() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil, fserror.New(fserror.Closed, "create", d.path, "the draft has ended already")
	}
	d.ended = true
	return d.data, nil
}

// Open makes the file, with what was written so far, and returns it open for
// write. LeaseLost if it cannot be made any more: another made a file of that
// name, the directory was removed, or the namenode has forgotten this session.
// Other errors are those of Create; but while no namenode answers, or none takes
// anything on, it is tried again until the context ends.
func (d *Draft) Open(ctx context.Context) (*Writer, error) {
	data, err := d.finish()
	if err != nil {
		return nil, err
	}
	defer d.fs.drafts.end(d)
	w, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := w.WriteContext(ctx, data); err != nil {
		_ = w.Abort()
		return nil, err
	}
	return w, nil
}

// open sends the Create until it is answered, since its bytes are nowhere else.
func (d *Draft) open(ctx context.Context) (*Writer, error) {
	req := d.request()
	defer d.fs.ids.End(req.Call)
	for n := 0; ; n++ {
		c := namecall.Call{Op: "create", Path: d.path, Mutates: true}
		resp := new(pb.OpenResponse)
		asked := d.fs.session.Now()
		switch err := d.send(ctx, &c, req, resp); {
		case err == nil:
			return d.fs.newWriter("create", d.path, resp, asked, 0)
		case numberGone(err):
			return nil, d.lost(err) // who has it open knows it by its number
		case !transient(err) || !d.fs.nn.Sleep(ctx, namecall.Backoff(n)):
			return nil, err
		}
	}
}

// Close makes the file whole and closed: mtime is its modification time in Unix
// milliseconds, 0 for that of the call. When the context ends that is still tried
// for three seconds. Errors are LeaseLost, as of Open, and those of Create.
func (d *Draft) Close(ctx context.Context, mtime int64) error {
	data, err := d.finish()
	if err != nil {
		return err
	}
	ctx, over := lingering(ctx)
	defer over()
	req := d.request()
	req.Close, req.MtimeUnixMs = true, mtime
	req.Data, req.DataCrc32C = data, blockstore.CRC(data)
	defer d.fs.drafts.end(d)
	defer d.fs.ids.End(req.Call)
	c := namecall.Call{Op: "create", Path: d.path, Mutates: true, TailToo: len(data) > 0}
	err = d.send(ctx, &c, req, new(pb.OpenResponse))
	if numberGone(err) { // better with another number than not at all
		again := d.request()
		again.As = 0
		again.Close, again.MtimeUnixMs, again.Data, again.DataCrc32C = true, mtime, data, req.DataCrc32C
		defer d.fs.ids.End(again.Call)
		if err = d.send(ctx, &c, again, new(pb.OpenResponse)); tailRefused(err) {
			return d.lost(err)
		}
	}
	if len(data) == 0 || !tailRefused(err) {
		return err
	}
	w, err := d.open(ctx) // as a block
	if err != nil {
		return err
	}
	w.mtime = mtime
	if _, err := w.WriteContext(ctx, data); err != nil {
		_ = w.Abort()
		return err
	}
	return w.CloseContext(ctx)
}

func (d *Draft) request() *pb.CreateRequest {
	req := d.fs.createRequest(d.fs.caller, at(context.Background(), d.ref()), &d.opts)
	req.As = d.inode
	req.Cache = d.fs.cache != nil // the same at each try: the call is known by it
	req.Call = d.fs.ids.Begin()
	return req
}

// ref is where the file is made: by the directory's number, since that may have been
// renamed.
func (d *Draft) ref() door.Ref { return door.Ref{Base: d.dir, Path: d.name} }

// keys are what the making of the file changes.
func (d *Draft) keys() []readcache.Key {
	return append(nameKeys(d.dir, d.name), readcache.Key{Kind: keyAttr, Inode: d.inode})
}

func (d *Draft) send(ctx context.Context, c *namecall.Call, req *pb.CreateRequest, resp *pb.OpenResponse) error {
	f := d.fs
	g := f.giveUp(d.keys()...)
	f.willMake(d.dir, d.name) // the set of names may be newer than the draft
	req.GivenUp = g.wire()
	err := f.nn.Do(ctx, c, pb.Namenode_Create_FullMethodName, req, resp)
	if err == nil {
		g.keepCreate(d.ref(), resp)
	}
	g.end(c, err)
	if numberGone(err) {
		f.drafts.forgetNumbers()
		return err
	}
	switch fserror.KindOf(err) {
	case fserror.Exists, fserror.NotFound, fserror.NotDirectory:
		if err != nil {
			return d.lost(err)
		}
	}
	return err
}

// noNumber is the reason of a refusal of an inode number: the session was away for
// so long that the namenode has forgotten what was set aside for it.
const noNumber = "no number"

func numberGone(err error) bool {
	var e *fserror.Error
	return errors.As(err, &e) && e.Kind == fserror.InvalidArgument && e.Reason == noNumber
}

func (d *Draft) lost(err error) error {
	return fserror.New(fserror.LeaseLost, "create", d.path, "the file was begun here and cannot be made any more: %s", cause(err))
}

func cause(err error) string {
	var e *fserror.Error
	if errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return err.Error()
}
