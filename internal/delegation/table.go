package delegation

import (
	"context"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// fewNumbers is how many inode numbers are left when more are asked for.
const fewNumbers = 256

// Client is what a Table needs of the client that it is a part of. W is the client's
// file open for write.
type Client[W Writer] interface {
	// Delegated reports whether this session holds the delegation of a directory now.
	Delegated(dir uint64) bool
	// Absent reports whether it is known now that there is nothing at a place.
	Absent(ctx context.Context, at door.Ref) bool
	// Names is the filter of a directory, nil if there is none. It is found even while
	// the session's term does not run, since the next term may make it valid again.
	Names(dir uint64) *Names
	// MaxWhole is how many bytes of data a Create may carry.
	MaxWhole() int64
	// Create sends a Create of a whole file, and adds the name to the filter after it
	// has given up the directory's entries: no filter without the name can replace that
	// one. asBlock tells of an error that the namenode has no room for the data, which
	// has to become a block.
	Create(ctx context.Context, path string, req *pb.CreateRequest) (asBlock bool, err error)
	// Open is Create of a file that stays open. While no namenode answers, or none takes
	// anything on, it is tried again until the context ends.
	Open(ctx context.Context, path string, req *pb.CreateRequest) (W, error)
	// Linger is a context that ends a little later than ctx, for what must not stay
	// half done. The function releases it.
	Linger(ctx context.Context) (context.Context, context.CancelFunc)
}

// Writer is a file open for write.
type Writer interface {
	WriteContext(ctx context.Context, p []byte) (int, error)
	SetModTime(t time.Time)
	Abort() error
	CloseContext(ctx context.Context) error
}

// Config is what a Table is made of. All is required.
type Config[W Writer] struct {
	Client Client[W]
	IDs    *namecall.IDs // of the session's calls
	Umask  uint32
}

// Table has the drafts of a session, and the inode numbers that are set aside for it.
type Table[W Writer] struct {
	cfg Config[W]

	mu      sync.Mutex                      // taken before locks of the Client
	begun   map[uint64]map[string]*Draft[W] // by directory and name
	numbers []numbers
	left    int  // in numbers
	asking  bool // for more: one call at a time
}

// numbers are inode numbers that are set aside for this session.
type numbers struct {
	first uint64
	n     uint32
}

// New returns a Table without drafts and numbers.
func New[W Writer](cfg Config[W]) *Table[W] {
	return &Table[W]{cfg: cfg, begun: make(map[uint64]map[string]*Draft[W])}
}

// File is a file to begin.
type File struct {
	Caller  *pb.Caller // who makes it; never changed
	Dir     *pb.Attr   // of the directory in which it is made
	Name    string     // in that directory
	At      door.Ref   // the same as the caller names it, for Client.Absent
	Path    string     // for errors
	Mode    uint32     // with HasMode; else 0644
	HasMode bool
	Owner   *pb.Owner // nil: the caller, and the directory's group
}

// NewDraft begins a draft; false if that cannot be: then the file has to be created.
func (t *Table[W]) NewDraft(ctx context.Context, f File) (*Draft[W], bool) {
	dir := f.Dir.GetInode()
	t.mu.Lock()
	defer t.mu.Unlock()
	// Under the lock the delegation is looked for: once a recall has taken it away,
	// the acknowledgement names all drafts that were begun before.
	if !t.cfg.Client.Delegated(dir) || t.left == 0 || t.begun[dir][f.Name] != nil || !t.cfg.Client.Absent(ctx, f.At) {
		return nil, false
	}
	d := &Draft[W]{table: t, file: f, inode: t.number(), begun: time.Now().Truncate(time.Millisecond)}
	if t.begun[dir] == nil {
		t.begun[dir] = make(map[string]*Draft[W])
	}
	t.begun[dir][f.Name] = d
	t.cfg.Client.Names(dir).Add(f.Name)
	return d, true
}

// number takes one of the numbers, of which there is one.
func (t *Table[W]) number() uint64 {
	next := &t.numbers[0]
	inode := next.first
	t.left--
	next.first++
	if next.n--; next.n == 0 {
		t.numbers = t.numbers[1:]
	}
	return inode
}

// forget forgets a draft that became a file or cannot become one.
func (t *Table[W]) forget(d *Draft[W]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dir := d.Dir()
	delete(t.begun[dir], d.file.Name)
	if len(t.begun[dir]) == 0 {
		delete(t.begun, dir)
	}
}

// Begun reports whether a name is a draft's.
func (t *Table[W]) Begun(dir uint64, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun[dir][name] != nil
}

// Ask makes a Create ask for the delegation of its directory, and for numbers if few
// are left and no other call asks. Answered has to follow.
func (t *Table[W]) Ask(req *pb.CreateRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	req.Creations, req.Numbers = true, !t.asking && t.left < fewNumbers
	t.asking = t.asking || req.Numbers
}

// Answered takes in the numbers that came with the answer to such a Create; nil if it
// failed. The delegation itself is the client's to keep.
func (t *Table[W]) Answered(req *pb.CreateRequest, resp *pb.OpenResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if req.GetNumbers() {
		t.asking = false
	}
	if n := resp.GetInodes(); resp.GetCreations() && n > 0 {
		t.numbers = append(t.numbers, numbers{resp.GetFirstInode(), n})
		t.left += int(n)
	}
}

// ForgetNumbers drops all numbers, which the namenode may have forgotten.
func (t *Table[W]) ForgetNumbers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.numbers, t.left = nil, 0
}

// Recalled is what the acknowledgement of a recall names: the drafts in the directories
// whose delegations it takes away, or all.
func (t *Table[W]) Recalled(all bool, dirs []uint64) (out []*pb.Draft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(names map[string]*Draft[W]) {
		for _, d := range names {
			out = append(out, &pb.Draft{Dir: d.Dir(), Name: d.file.Name, Inode: d.inode})
		}
	}
	if all {
		for _, names := range t.begun {
			add(names)
		}
		return out
	}
	for _, dir := range dirs {
		add(t.begun[dir])
	}
	return out
}
