package namespace

import "github.com/leasefs/leasefs/internal/fserror"

// caller is who owns what a call makes.
func (t *Tree) caller(c *Call) string {
	switch {
	case c == nil:
		return t.superUser
	case c.ForUser != "":
		return c.ForUser
	}
	return c.User
}

// groupIn is that of what a call makes in a directory: the directory's (HDFS, BSD).
func (t *Tree) groupIn(c *Call, dir *inode) string {
	if c != nil && c.ForGroup != "" {
		return c.ForGroup
	}
	return t.groups.Name(dir.group)
}

// planNew is what making an inode at a place takes: that nothing is
// there, that its directory may be changed, and with parents which directories
// are to be made first.
func (t *Tree) planNew(c *Call, op string, at place, parents bool) (dirs []string, name string, err error) {
	if at.rest != "" && !parents {
		return nil, "", t.missing(at, op)
	}
	dirs, name, err = at.newNames(op)
	if err != nil {
		return nil, "", err
	}
	if at.dir.typ != TypeDir {
		return nil, "", t.notDirectory(at.dir, op, at.path)
	}
	if err := t.requireChange(c, at.dir, op, at.path); err != nil {
		return nil, "", err
	}
	if at.unmeasured {
		depth, size := t.extent(at.dir)
		for _, d := range dirs {
			depth, size = depth+1, size+1+len(d)
		}
		if !fits(depth+1, size+1+len(name)) {
			return nil, "", tooLong(op, at.path, "its path")
		}
	}
	return dirs, name, t.checkOwners(c, op, at.path, t.caller(c), t.groupIn(c, at.dir))
}

func exists(op, path string, n *inode) error {
	switch n.typ {
	case TypeDir:
		return fserror.New(fserror.Exists, op, path, "a directory of this name exists")
	case TypeSymlink:
		return fserror.New(fserror.Exists, op, path, "a symbolic link of this name exists")
	}
	return fserror.New(fserror.Exists, op, path, "the file exists")
}
