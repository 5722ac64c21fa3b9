// Package touched knows which names the operations of a transaction touch, so that no two
// of them get in each other's way.
package touched

import (
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// Names are the names that operations touch. The zero value has none.
type Names []name

type name struct {
	op    int
	path  string
	marks bool // see Add
}

// Add adds a name that an operation, numbered from 0 on, touches. InvalidPath: it is no
// path; InvalidArgument: another operation touches it or something above or below it. marks says that the
// operation changes something about what is there, and no name: it may do so below what
// another one marks.
func (t *Names) Add(op int, path string, marks bool) error {
	if err := fspath.Check(path); err != nil {
		return err
	}
	for _, o := range *t {
		if path == o.path || !(marks && o.marks) && (within(path, o.path) || within(o.path, path)) {
			return fserror.New(fserror.InvalidArgument, "", path, "operation %d touches %s; each operation of a transaction needs names of its own, and none may be below what another makes, moves or removes", o.op+1, o.path)
		}
	}
	*t = append(*t, name{op, path, marks})
	return nil
}

// within reports whether a path is another one, or below it.
func within(path, top string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(top, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
