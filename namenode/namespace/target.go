package namespace

// Target is what a request is about: what a path leads to, or an inode by
// number, wherever it is.
type Target struct {
	Path  string
	Inode InodeID // if not 0, instead of Path
}

// At is the target at a path.
func At(path string) Target { return Target{Path: path} }

// aim returns the inode that a request is about, and its path for errors. An
// inode by number takes permission to search the directories above it. Errors:
// NotFound, and those of a path.
func (t *Tree) aim(c *Call, op string, at Target, follow bool) (*inode, string, error) {
	if at.Inode == 0 {
		p, err := t.find(c, op, at.Path, follow)
		return p.node, at.Path, err
	}
	n, err := t.reach(c, at.Inode, op)
	if err != nil {
		return nil, "", err
	}
	path, _ := t.Path(n.id)
	return n, path, nil
}
