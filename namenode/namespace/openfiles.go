package namespace

// OpenFile returns who has a file open for write; false if nobody has.
func (t *inodes) OpenFile(id InodeID) (OpenFile, bool) {
	n := t.get(id)
	if n == nil || n.Open() == nil {
		return OpenFile{}, false
	}
	return n.OpenFile(), true
}

// OpenFiles calls fn for every file open for write, by inode number, until it
// returns false.
func (t *inodes) OpenFiles(fn func(OpenFile) bool) { t.OpenFilesAfter(0, fn) }

// OpenFilesAfter is OpenFiles for numbers greater than id.
func (t *inodes) OpenFilesAfter(id InodeID, fn func(OpenFile) bool) {
	t.open.AscendGreaterOrEqual(id, func(o InodeID) bool {
		return o == id || fn(t.get(o).OpenFile())
	})
}

// WriterOf returns the file that a record of its writer is about: bytes that it
// brings, or the close. Ask before the record is applied. The namenode's own records, a
// block that it makes of a tail among them, are no writer's; nor is the commit of a
// block that makes the file no longer, since the two look alike.
//
// Such a record is a renewal: live, the namenode renews the session when it applies
// the record; and the tree forgets the session's age, so that a namenode that takes
// over counts its limits from then.
func (t *inodes) WriterOf(op Op) (f OpenFile, ok bool) {
	if w, is := op.(interface{ written() InodeID }); is {
		return t.OpenFile(w.written())
	}
	return f, false
}

// TailIs reports whether a file's tail has exactly these bytes at offset, which
// counts from the file's beginning.
func (t *inodes) TailIs(id InodeID, offset int64, data []byte) bool {
	n := t.get(id)
	return n != nil && n.Type == TypeFile && n.Content().Has(offset, data)
}
