package leasefsv1

// At is what has an absolute path: a symbolic link at its end is meant itself.
func At(path string) *Ref { return &Ref{Path: path} }

// Follow is what an absolute path leads to.
func Follow(path string) *Ref {
	return &Ref{Path: path, How: uint32(RefHow_REF_HOW_FOLLOW_LAST)}
}

// Inode is an inode, wherever it is.
func Inode(inode uint64) *Ref { return &Ref{Base: inode} }

// AbsolutePath is the path from the root; empty if it is from an inode.
func (r *Ref) AbsolutePath() string {
	if r.GetBase() != 0 {
		return ""
	}
	return r.GetPath()
}
