package fuse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	gofs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

// Options say how a namespace is mounted. The zero value mounts all of it for
// the user who mounts it.
type Options struct {
	// Root is the directory of the namespace that becomes the mount's root;
	// empty: "/".
	Root string
	// AllowOther lets other users of this machine in. Each call is made for the user who
	// asks, by his name on this machine: the namenode checks what he may, and that the user
	// of the client may act for him. A number without a name has the rights of others only.
	AllowOther bool
	// RootSquash, with AllowOther, gives root the rights of others only. Nil: unless the
	// client's user has the name of root.
	RootSquash *bool
	// ProcessGroups, with AllowOther, tells the namenode the groups of the process that
	// asks. It takes that for true if it trusts clients, or if a rule says so.
	ProcessGroups bool
	// Wait makes opening for write wait for a holder of the lease, until a signal
	// comes; else it is EBUSY.
	Wait bool
	// UID and GID, if not nil, are shown as owner and group of everything on this
	// machine, whatever the namespace says; a change to them changes nothing.
	UID, GID *uint32
	// ReadOnly mounts so.
	ReadOnly bool
	// KernelOptions are added to those of the mount: nosuid, noexec, …
	KernelOptions []string
	// Source is what df and mount show as device; empty: "leasefs".
	Source string

	test testOptions
}

// testOptions are for tests.
type testOptions struct {
	noEpochs bool                                        // as if the kernel had none
	quiet    *time.Duration                              // instead of epochQuiet
	draft    *time.Duration                              // instead of draftTime
	linger   *time.Duration                              // the last close is RELEASE, this much later; nil: as /proc shows it
	raw      func(fuse.RawFileSystem) fuse.RawFileSystem // what is put before the mount
	looked   func(name string)                           // called when a name is found, before go-fuse learns of it
	moved    func(inode uint64, move string)             // called when a hold moves, under the file's mu
}

// Mounted is a mounted namespace. It is safe for concurrent use.
type Mounted struct {
	fs     lowlevel.FS
	log    *slog.Logger
	root   string // of the namespace
	dir    string // where it is mounted; absolute
	within []byte // with a slash, as /proc has it
	wait   bool
	server *fuse.Server

	ctx    context.Context // ends with the mount
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when nothing of the mount is left
	err    error         // valid then

	ids       ids
	callers   callers
	status    statusCache
	kernel    *kernelCache
	device    *os.File // notifications that go-fuse does not know go this way; or nil
	hidden    hiddenNames
	refused   refusals
	drafts    draftSet
	tries     secondTries
	looked    func(name string)          // of tests; or nil
	moved     func(ino uint64, m string) // likewise
	timeout   time.Duration              // of a call
	draftTime time.Duration
	linger    *time.Duration // of tests; or nil

	mu     sync.Mutex
	files  map[uint64]*file
	closed bool
	wg     sync.WaitGroup // of goRun

	closing sync.WaitGroup // of closes that nobody may be waiting for
}

// maxIO is the size of the kernel's largest reads and writes.
const maxIO = 1 << 20

// Mount connects to a namespace and mounts it on dir, an existing folder. The
// configuration's Cache and OnRevoke are the mount's. The context governs
// Mount alone. NotFound, NotDirectory: Root is not a directory of the
// namespace; Internal: the kernel, or fusermount3, refused.
func Mount(ctx context.Context, cfg client.Config, dir string, o Options) (*Mounted, error) {
	const op = "mount"
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fserror.Wrap(fserror.InvalidArgument, op, dir, err)
	}
	within := dir
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		within = target
	}
	m := &Mounted{
		log: cfg.Logger, root: "/", dir: dir, within: []byte(strings.TrimSuffix(within, "/") + "/"), wait: o.Wait,
		ended: make(chan struct{}), files: make(map[uint64]*file),
		draftTime: draftTime, hidden: newHiddenNames(),
		ids: newIDs(o),
	}
	m.linger = o.test.linger
	m.looked, m.moved = o.test.looked, o.test.moved
	if o.test.draft != nil {
		m.draftTime = *o.test.draft
	}
	if o.Root != "" {
		m.root = o.Root
	}
	if m.timeout = cfg.Timeout; m.timeout <= 0 {
		m.timeout = client.DefaultTimeout
	}
	m.log = cmp.Or(m.log, slog.New(slog.DiscardHandler))
	m.ctx, m.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	m.kernel = newKernelCache(m.ctx, func() time.Duration { return m.fs.CacheRemaining() }, m.goRun)
	cfg.Cache, cfg.Drafts, cfg.OnRevoke, cfg.OnGiveUp = true, true, m.kernel.revoked, m.kernel.givesUp
	c, err := client.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	m.fs = lowlevel.Of(c)
	m.callers.setUser(o, m.fs.Info().User, &m.ids)
	if err := m.mount(ctx, o); err != nil {
		m.shut()
		_ = m.fs.Close() // err says more
		return nil, fserror.With(err, op, dir)
	}
	go m.finish()
	return m, nil
}

func (m *Mounted) mount(ctx context.Context, o Options) error {
	ino, err := m.findRoot(ctx)
	if err != nil {
		return err
	}
	if err := checkMountPoint(m.dir); err != nil {
		return err
	}
	source := o.Source
	source = cmp.Or(source, "leasefs")
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	kernel := slices.Clone(o.KernelOptions)
	if !m.callers.each {
		kernel = append(kernel, "default_permissions")
	}
	if o.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	direct := os.Geteuid() == 0
	if o.ReadOnly && !direct {
		kernel = append(kernel, "ro")
	}
	logger := slog.NewLogLogger(m.log.Handler(), slog.LevelWarn)
	options := gofs.Options{
		NullPermissions: true,
		RootStableAttr:  &gofs.StableAttr{Ino: ino},
		Logger:          logger,
		MountOptions: fuse.MountOptions{
			AllowOther: o.AllowOther, Options: kernel, FsName: source, Name: "leasefs",
			DirectMount: direct, DirectMountFlags: flags, MaxWrite: maxIO, MaxBackground: 64, Logger: logger,
			EnableAcl:     !o.AllowOther, // the kernel checks by ACLs, too, where it checks
			DisableSplice: true,          // what is read is in memory, and may be more than a pipe takes
			// O_TRUNC comes with OPEN, so that it is one with taking the lease; flock
			// comes, record locks do not; there are no set-id bits to be taken away.
			ExtraCapabilities: fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_FLOCK_LOCKS | fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_HANDLE_KILLPRIV_V2 |
				fuse.CAP_DONT_MASK, // what a default ACL says takes the place of the umask
		},
	}
	root := &node{m: m, ino: ino}
	var raw fuse.RawFileSystem = answers{gofs.NewNodeFS(root, &options)}
	if o.test.raw != nil {
		raw = o.test.raw(raw)
	}
	m.server, err = fuse.NewServer(raw, m.dir, &options.MountOptions)
	if err != nil {
		return fserror.Wrap(fserror.Internal, "", "", fmt.Errorf("mounting was refused: %w", err))
	}
	go m.server.Serve()
	if err := m.server.WaitMount(); err != nil {
		_ = m.detach()
		return fserror.Wrap(fserror.Internal, "", "", err)
	}
	m.startEpochs(o)
	m.readAhead()
	return nil
}

// findRoot looks at the mount's root.
func (m *Mounted) findRoot(ctx context.Context) (uint64, error) {
	root, err := fspath.Clean(m.root)
	if err != nil {
		return 0, err
	}
	m.root = root
	i, err := m.fs.Lstat(ctx, root)
	if err != nil {
		return 0, err
	}
	if !i.IsDir() {
		return 0, fserror.New(fserror.NotDirectory, "", root, "it is not a directory")
	}
	return i.Inode, nil
}

// appendTo opens a file for write, waiting for a holder if that is wanted.
func (f *file) appendTo(ctx, raw context.Context, wait bool, opts ...client.OpenOption) (*client.Writer, error) {
	w, err := f.m.fs.AppendInode(ctx, f.ino, f.name(), false, opts...)
	if !wait || !errors.Is(err, fserror.Held) {
		return w, err
	}
	patient, stop := f.m.impatient(ctx, raw)
	defer stop()
	f.mu.Lock()
	close(f.elsewhere) // who does not want to wait need not
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.elsewhere = make(chan struct{})
	}()
	return f.m.fs.AppendInode(patient, f.ino, f.name(), false, append(opts, client.WithWait(math.MaxInt32*time.Second))...)
}

// goRun runs fn while the mount lives; false if that is over.
func (m *Mounted) goRun(fn func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.wg.Go(fn)
	return true
}

// shut ends goRun and waits for what runs.
func (m *Mounted) shut() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel(fserror.New(fserror.Closed, "", "", "the mount ends"))
	m.wg.Wait()
}

// FS is the client of the mount.
func (m *Mounted) FS() *client.FS { return m.fs.FS }

// finish ends what is left when the kernel has let go of the mount, by whoever
// unmounted it.
func (m *Mounted) finish() {
	m.server.Wait()
	m.closing.Wait() // each call of theirs has its time-out
	err := m.endDrafts()
	m.shut()
	m.err = errors.Join(err, m.fs.Close())
	if m.device != nil {
		_ = m.device.Close() // nothing is kept back in it
	}
	close(m.ended)
}

// Wait waits until the mount has ended and nothing of it is left. The error is
// that of files that could not be closed.
func (m *Mounted) Wait() error {
	<-m.ended
	return m.err
}

// Ended is closed when Wait would return.
func (m *Mounted) Ended() <-chan struct{} { return m.ended }

// Unmount flushes all files and unmounts. While files are in use it tries
// again, until the context ends; then the mount is taken away from under them:
// what they wrote before is durable. It returns when nothing is left.
func (m *Mounted) Unmount(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	first := m.flushAll(ctx)
	for {
		err := m.unmount(false)
		if err == nil {
			break
		}
		select {
		case <-m.ended: // somebody else was quicker
			return errors.Join(first, m.err)
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		if !errors.Is(first, syscall.ESTALE) { // a loss is told once; all else is tried again
			first = nil
		}
		first = errors.Join(first, m.flushAll(context.WithoutCancel(ctx)))
		if err := m.detach(); err != nil {
			return fserror.Wrap(fserror.Internal, "unmount", m.dir, err)
		}
		break
	}
	return errors.Join(first, m.Wait())
}

// flushAll makes durable what all files have.
func (m *Mounted) flushAll(ctx context.Context) error {
	m.mu.Lock()
	files := make([]*file, 0, len(m.files))
	for _, f := range m.files {
		files = append(files, f)
	}
	m.mu.Unlock()
	var errs []error
	for _, f := range files {
		e := f.flush(ctx)
		ended := ctx.Err() != nil && (e == syscall.EINTR || e == syscall.ETIMEDOUT) // it is tried again
		if e != 0 && !ended {
			errs = append(errs, fserror.Wrap(fserror.Internal, "unmount", f.name(), e))
		}
	}
	return errors.Join(errs...)
}

// detach takes the mount away whoever uses it.
func (m *Mounted) detach() error { return m.unmount(true) }

func (m *Mounted) unmount(lazy bool) error {
	if os.Geteuid() == 0 {
		flags := unix.UMOUNT_NOFOLLOW
		if lazy {
			flags |= unix.MNT_DETACH | unix.MNT_FORCE // the second ends the connection
		}
		return unix.Unmount(m.dir, flags)
	}
	argv := []string{"-u", "-q"}
	if lazy {
		argv = append(argv, "-z")
	}
	return exec.Command("fusermount3", append(argv, "--", m.dir)...).Run() //nolint:gosec // the mount's own folder
}

// readAhead lets the kernel read ahead as far as one request goes, where it may
// be told so.
func (m *Mounted) readAhead() {
	for _, f := range mountsAt(m.dir) {
		// Only root may; it is about speed only.
		_ = os.WriteFile("/sys/class/bdi/"+f[2]+"/read_ahead_kb", []byte("1024"), 0o600)
	}
}

// mountsAt are the lines of mountinfo(5), in fields, of what is mounted at a folder.
func mountsAt(dir string) (lines [][]string) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); len(f) > 4 && unescape(f[4]) == dir {
			lines = append(lines, f)
		}
	}
	return lines
}

// checkMountPoint returns an error if there is nothing to mount on, or another
// mount of leasefs.
func checkMountPoint(dir string) error {
	switch st, err := os.Stat(dir); {
	case errors.Is(err, syscall.ENOTCONN):
		return fserror.New(fserror.Exists, "", "", "a mount whose process has ended is there still; unmount it first (fusermount3 -u %s)", dir)
	case errors.Is(err, os.ErrNotExist):
		return fserror.New(fserror.NotDirectory, "", "", "the mount point is not there; make it first (mkdir -p %s)", dir)
	case err != nil:
		return fserror.New(fserror.NotDirectory, "", "", "the mount point cannot be used: %v", err)
	case !st.IsDir():
		return fserror.New(fserror.NotDirectory, "", "", "the mount point %s is not a folder", dir)
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	for _, f := range mountsAt(dir) {
		if slices.Contains(f, "fuse.leasefs") {
			return fserror.New(fserror.Exists, "", "", "leasefs is mounted there already; unmount it first (fusermount3 -u %s)", dir)
		}
	}
	return nil
}

// unescape undoes how mountinfo writes blanks and the like.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
