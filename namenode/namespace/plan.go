package namespace

import (
	"cmp"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/namenode/namespace/snapshots"
)

// caller is who owns what a call makes.
func (v view) caller() string {
	switch {
	case v.c == nil:
		return v.superUser
	case v.c.ForUser != "":
		return v.c.ForUser
	}
	return v.c.User
}

// groupIn is that of what a call makes in a directory: the directory's (HDFS, BSD).
func (v view) groupIn(dir *inode) string {
	if v.c != nil && v.c.ForGroup != "" {
		return v.c.ForGroup
	}
	return v.GroupNames.Name(dir.Group)
}

// planNew is what making an inode at a place takes: that nothing is
// there, that its directory may be changed, and with parents which directories
// are to be made first.
func (v view) planNew(at place, parents bool) (dirs []string, name string, err error) {
	if at.rest != "" && !parents {
		return nil, "", v.missing(at)
	}
	if dirs, name, err = fspath.Names(at.name, at.rest); err != nil {
		return nil, "", fserror.With(err, v.op, at.path)
	}
	if err := snapshots.CheckNames(append(dirs, name)...); err != nil {
		return nil, "", fserror.With(err, v.op, at.path)
	}
	if at.dir.Type != TypeDir {
		return nil, "", v.notDirectory(at.dir, at.path)
	}
	if err := v.requireChange(at.dir, at.path); err != nil {
		return nil, "", err
	}
	if at.unmeasured {
		depth, size := v.slots.Extent(at.dir.ID)
		for _, d := range dirs {
			depth, size = depth+1, size+1+len(d)
		}
		if !fspath.Fits(depth+1, size+1+len(name)) {
			return nil, "", fspath.TooLong(v.op, at.path, "its path")
		}
	}
	return dirs, name, v.checkOwners(at.path, v.caller(), v.groupIn(at.dir))
}

// checkOwners says whether the names of a user and a group can be recorded.
func (v view) checkOwners(path, user, group string) error {
	return fserror.With(cmp.Or(v.c.MayBring(&v.Named, user, group), v.Fit(user, group)), v.op, path)
}
