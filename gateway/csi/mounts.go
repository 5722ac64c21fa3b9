package csi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/fserror"
)

// endsEvery is how often it is looked whether the process of a mount has ended.
const endsEvery = 50 * time.Millisecond

// fuseType is what the kernel calls our mounts.
const fuseType = "fuse.leasefs"

// mounts makes and looks at mounts of this machine.
type mounts struct {
	command func(Mount) *exec.Cmd
	ledger  *ledger
	looks   singleflight.Group
}

// place checks a path at which something is to be mounted, or is. It is resolved up to its
// last name, which must be no link: only the kernel is asked, no mount.
func place(volume, path string) (string, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" || len(path) >= unix.PathMax {
		return "", invalid(volume, "%.80q is no clean absolute path of a mount", path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fserror.New(fserror.NotFound, op, path, "%v", err)
	}
	path = filepath.Join(dir, filepath.Base(path))
	if to, err := os.Readlink(path); err == nil {
		return "", invalid(volume, "%.80q is a symbolic link to %.80q", path, to)
	}
	return path, nil
}

// at is how many mounts are at a path, one on the other. It asks the kernel only.
func at(path string) (int, error) {
	all, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != path, false })
	if err != nil {
		return 0, fserror.Wrap(fserror.Internal, op, path, err)
	}
	for _, m := range all {
		if m.FSType != fuseType {
			return 0, fserror.New(fserror.NotEmpty, op, path, "something else is mounted there (%s): unmount it", m.FSType)
		}
	}
	return len(all), nil
}

// stat asks a mount how full it is. dead tells that the process that served it has ended. A
// mount whose namenode is away answers late; looks that wait for it are one.
func (m *mounts) stat(ctx context.Context, path string) (s *unix.Statfs_t, dead bool, err error) {
	look := m.looks.DoChan(path, func() (any, error) {
		s := new(unix.Statfs_t)
		return s, unix.Statfs(path, s)
	})
	select {
	case r := <-look:
		if errors.Is(r.Err, unix.ENOTCONN) || errors.Is(r.Err, unix.ECONNABORTED) {
			return nil, true, r.Err
		}
		if r.Err != nil {
			return nil, false, fserror.Wrap(fserror.Unavailable, op, path, r.Err)
		}
		return r.Val.(*unix.Statfs_t), false, nil
	case <-ctx.Done():
		return nil, false, fserror.Ended(ctx, op, path)
	}
}

// missing tells whether a path has no mount that works. One that was left by a process that
// has ended is taken away, but for so many below it. An error says that neither is known.
func (m *mounts) missing(ctx context.Context, path string, keep int) (bool, error) {
	has, err := at(path)
	if err != nil || has == 0 {
		return has == 0, err
	}
	if _, dead, err := m.stat(ctx, path); !dead {
		if fserror.KindOf(err) == fserror.Unavailable { // it answered: that no namenode does
			err = nil
		}
		return false, err
	}
	return true, detach(path, keep)
}

// broken tells whether one of the paths certainly has no mount that works.
func (m *mounts) broken(ctx context.Context, paths ...string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		if has, err := at(path); err != nil || has == 0 {
			return err == nil
		}
		_, dead, _ := m.stat(ctx, path)
		return dead
	})
}

// detach takes what is mounted at a path away, even if it is in use, down to so many mounts.
func detach(path string, keep int) error {
	for {
		if has, err := at(path); err != nil || has <= keep {
			return err
		}
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fserror.Wrap(fserror.Internal, op, path, err)
		}
	}
}

// start mounts a volume where it is staged, by a process of its own that outlives the driver
// and writes to its standard error.
func (m *mounts) start(ctx context.Context, v *staged) error {
	how := Mount{Path: v.Path, Dir: v.Staging, Options: v.Mount.Options, Wait: v.Mount.Wait, User: v.User}
	if v.Token {
		how.TokenFile = m.ledger.token(v.ID)
	}
	cmd := m.command(how)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fserror.Wrap(fserror.Internal, op, v.Staging, err)
	}
	if err := cmd.Start(); err != nil {
		return fserror.Wrap(fserror.Internal, op, v.Staging, err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if line, err := bufio.NewReader(out).ReadString('\n'); err == nil && strings.HasPrefix(line, "ready ") {
			close(ready)
		}
		_ = cmd.Wait() // its state is looked at
	}()
	select {
	case <-ready:
		return nil
	case <-ended:
		select {
		case <-ready: // and has ended since: the next look finds that
			return nil
		default:
		}
		return fserror.New(kindOf(cmd.ProcessState.ExitCode()), op, v.Path, "mounting it at %s failed (%s): the driver's log has the reason", v.Staging, cmd.ProcessState)
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM) // it unmounts if it has mounted just now
		timer := time.AfterFunc(endTime, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		<-ended
		return fserror.Ended(ctx, op, v.Path)
	}
}

// serves tells whether a process mounts at a folder, or did and still writes what it has. It may be
// one that a driver before this one started, and did not live to see mount.
func serves(dir string) (bool, error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false, fserror.Wrap(fserror.Internal, op, dir, err)
	}
	for _, file := range all {
		line, err := os.ReadFile(file) //nolint:gosec // of the kernel
		if err == nil && bytes.Contains(line, []byte("\x00mount\x00")) && bytes.HasSuffix(line, []byte("\x00"+dir+"\x00")) {
			return true, nil
		}
	}
	return false, nil
}

// end takes what is mounted at a folder away, and waits until no process mounts there: what pods
// wrote is then in the namespace, and nothing is mounted later.
func (m *mounts) end(ctx context.Context, dir string) error {
	tick := time.NewTicker(endsEvery)
	defer tick.Stop()
	for {
		if err := m.unmount(ctx, dir); err != nil {
			return err
		}
		if still, err := serves(dir); err != nil || !still {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fserror.Ended(ctx, op, dir)
		}
	}
}

// kindOf is the kind of error with which leasefs ended.
func kindOf(exit int) fserror.Kind {
	for _, k := range []fserror.Kind{fserror.NotFound, fserror.Permission, fserror.Unavailable, fserror.Retry} {
		if k.ExitCode() == exit {
			return k
		}
	}
	return fserror.Internal
}

// bind shows a staged volume at a target. A second time it changes nothing. A mount there whose
// process has ended is covered: what is mounted on it reaches the pods that have it, too, if
// they take mounts of the host.
func (m *mounts) bind(ctx context.Context, v *staged, target string) error {
	if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fserror.Wrap(fserror.NotFound, op, target, err)
	}
	if none, err := m.missing(ctx, target, 1); err != nil || !none {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, v.Staging, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fserror.Wrap(fserror.Internal, op, v.Staging, err)
	}
	defer func() { _ = unix.Close(tree) }() // which is the end of it if it was not mounted
	// Before anybody sees it. What is mounted on it is to be seen at this target, not at others.
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if v.Targets[target] {
		attr.Attr_set = unix.MOUNT_ATTR_RDONLY
	}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
	if err == nil {
		err = unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return fserror.Wrap(fserror.Internal, op, target, err)
	}
	return nil
}

// unmount takes a mount away that nobody uses. None is no error.
func (m *mounts) unmount(ctx context.Context, path string) error {
	for {
		has, err := at(path)
		if err != nil || has == 0 {
			return err
		}
		err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
		case errors.Is(err, unix.EBUSY):
			if _, dead, _ := m.stat(ctx, path); dead {
				return detach(path, 0)
			}
			return fserror.New(fserror.NotEmpty, op, path, "the mount is in use: end the processes that have files or folders in it open")
		default:
			return fserror.Wrap(fserror.Internal, op, path, err)
		}
		if ctx.Err() != nil {
			return fserror.Ended(ctx, op, path)
		}
	}
}
