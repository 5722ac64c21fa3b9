package local

import (
	"errors"
	"io"
	"syscall"

	"github.com/leasefs/leasefs/internal/vfs"
)

// spares is how many descriptors a journal keeps for when the process has no
// more: to begin a segment it needs two at a time.
const spares = 4

// reserve is descriptors that are given up for others of the journal. What it
// opens again and again is a file that is there as long as the journal.
type reserve struct {
	fs   vfs.FS
	name string
	open []io.Closer
}

// fill takes back what was given up, as far as there are descriptors.
func (r *reserve) fill() {
	for len(r.open) < spares {
		f, err := r.fs.Open(r.name)
		if err != nil {
			return // tried again when the next segment begins
		}
		r.open = append(r.open, f)
	}
}

// do calls op, again and again as long as it fails for want of a descriptor and
// one can be given up for it.
func (r *reserve) do(op func() error) error {
	for {
		err := op()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || len(r.open) == 0 {
			return err
		}
		last := len(r.open) - 1
		_ = r.open[last].Close() // it was only read
		r.open = r.open[:last]
	}
}

func (r *reserve) close() {
	for _, f := range r.open {
		_ = f.Close() // as above
	}
	r.open = nil
}
