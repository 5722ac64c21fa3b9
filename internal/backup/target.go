package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/fserror"
)

// target is where a backup goes.
type target struct {
	dir string // the folder that it becomes
	// work is where it is received: beside dir, and then renamed; or if dir is
	// there, and empty, in it: it may be a mount point, which cannot be renamed
	// over, or its parent may be somebody else's.
	work   string
	inside bool
	made   []string // parents of work that were missing, the lowest first
	unlock func()
}

const (
	partSuffix  = ".part"
	partInside  = ".leasefs-backup" + partSuffix
	versionFile = "VERSION" // makes a folder valid: the last to come into one
	lostFound   = "lost+found"
)

// backupFolders are what a backup has besides versionFile.
var backupFolders = []string{blocksFolder, "image"}

// openTarget takes the folder for one backup. What cannot become one is refused
// and left as it was.
func openTarget(dir string) (*target, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fserror.Wrap(fserror.InvalidArgument, "", dir, err)
	}
	t := &target{dir: dir, work: filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+partSuffix)}
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return nil, fserror.New(fserror.InvalidArgument, "", "", "it is a file: name a new folder")
	case err == nil:
		t.inside, t.work = true, filepath.Join(dir, partInside)
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fserror.New(fserror.InvalidArgument, "", "", "what should be a folder on the way to it is a file: name a new folder")
	case !errors.Is(err, fs.ErrNotExist):
		return nil, localError("", err)
	default:
		if _, err := os.Lstat(dir); err == nil {
			return nil, fserror.New(fserror.InvalidArgument, "", "", "it is a symbolic link to nowhere: name a new folder")
		}
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := refuseInside(dir); err != nil {
		return nil, err
	}
	return t, t.take()
}

// check makes sure that nothing is there that is not a backup's, unfinished.
func (t *target) check() error {
	entries, err := os.ReadDir(t.dir)
	switch {
	case !t.inside && errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return localError("", err)
	}
	ours := []string{partInside, lostFound}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == partInside }) {
		ours = append(ours, backupFolders...) // it was cut off at its very end
	}
	for _, e := range entries {
		if !slices.Contains(ours, e.Name()) {
			return fserror.New(fserror.Exists, "", "", "the folder is not empty (%s); name a new one", e.Name())
		}
	}
	return nil
}

// refuseInside refuses a folder in what belongs to a namenode, or in a backup.
func refuseInside(dir string) error {
	at := dir
	for { // what there is of it, without links
		if resolved, err := filepath.EvalSymlinks(at); err == nil {
			at = resolved
			break
		}
		up := filepath.Dir(at)
		if up == at {
			break
		}
		at = up
	}
	exists := func(parts ...string) bool {
		_, err := os.Lstat(filepath.Join(parts...))
		return err == nil
	}
	for ; ; at = filepath.Dir(at) {
		if exists(at, versionFile) && (exists(at, "image") || exists(at, "journal")) {
			return fserror.New(fserror.InvalidArgument, "", "", "it is inside %s, a namenode's data folder or a backup: name a folder elsewhere, best on another disk", at)
		}
		entries, _ := os.ReadDir(at) // what may not be listed is not ours
		for _, e := range entries {
			if len(e.Name()) == 32 && strings.Trim(e.Name(), "0123456789abcdef") == "" && exists(at, e.Name(), "NAMESPACE") || e.Name() == "NAMESPACE" && exists(at, "tmp") {
				return fserror.New(fserror.InvalidArgument, "", "", "it is inside %s, a namenode's block folder: name a folder elsewhere, best on another disk", at)
			}
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// take makes the working folder and locks it.
func (t *target) take() error {
	for up := filepath.Dir(t.work); ; up = filepath.Dir(up) {
		if _, err := os.Lstat(up); !errors.Is(err, fs.ErrNotExist) || up == filepath.Dir(up) {
			break
		}
		t.made = append(t.made, up)
	}
	err := os.MkdirAll(t.work, 0o750)
	if err == nil {
		t.unlock, err = lockFolder(t.work)
	}
	switch {
	case errors.Is(err, fserror.Exists):
		return err
	case err != nil:
		t.removeParents()
		return notWritable(err)
	}
	// Another may have been done a moment ago.
	if err = t.check(); err == nil && !t.inside {
		if _, serr := os.Lstat(t.dir); serr == nil {
			err = fserror.New(fserror.Exists, "", "", "another backup has just been made there")
		}
	}
	if err == nil && t.inside {
		err = t.takeBack()
	}
	if err != nil {
		_ = os.Remove(t.work) // if it is empty
		t.unlock()
	}
	return err
}

func notWritable(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fserror.New(fserror.Permission, "", "", "nothing may be written there (%v): name a folder that you may write", err)
	}
	return localError("", err)
}

// takeBack takes what a try had put in its place already when it was cut off.
func (t *target) takeBack() error {
	for _, name := range backupFolders {
		err := os.Rename(filepath.Join(t.dir, name), filepath.Join(t.work, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return localError(name, err)
		}
	}
	return nil
}

// publish gives the folder its name, or its content, once all of it is on the
// disk.
func (t *target) publish() error {
	if !t.inside {
		if err := os.Rename(t.work, t.dir); err != nil {
			return localError("", err)
		}
		for _, at := range append([]string{t.dir}, t.made...) { // the folders above it, too, are there after a power failure
			if err := syncDir(filepath.Dir(at)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, names := range [][]string{backupFolders, {versionFile}} {
		for _, name := range names {
			err := os.Rename(filepath.Join(t.work, name), filepath.Join(t.dir, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // of the tree alone there are no blocks
				return localError(name, err)
			}
		}
		if err := syncDir(t.dir); err != nil {
			return err
		}
	}
	if err := os.Remove(t.work); err != nil {
		return localError(t.work, err)
	}
	return syncDir(t.dir)
}

// giveUp removes what there is, and says if that fails.
func (t *target) giveUp() error {
	err := os.RemoveAll(t.work)
	t.removeParents()
	return err
}

func (t *target) removeParents() {
	for _, dir := range t.made {
		if unix.Rmdir(dir) != nil { // somebody else's thing is in it
			return
		}
	}
}
