package offline

import (
	"bytes"
	"context"
	"io"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/backups"
	"github.com/leasefs/leasefs/namenode/namespace"
)

// answers is a store that answers each question as it is told to.
type answers struct {
	blockstore.Store
	body io.Reader
	err  error
}

func (a answers) Get(context.Context, blockstore.Key, int64, int64) (io.ReadCloser, error) {
	return io.NopCloser(a.body), a.err
}

// TestReadBlock: a block is damaged only if the store has another one. What a connection that
// breaks off leaves of it says nothing.
func TestReadBlock(t *testing.T) {
	some := make([]byte, 10)
	for name, c := range map[string]struct {
		store answers
		kind  fserror.Kind
	}{
		"shorter": {answers{body: bytes.NewReader(some)}, fserror.Damaged},
		"no byte": {answers{body: bytes.NewReader(nil)}, fserror.Damaged},
		"empty":   {answers{err: fserror.New(fserror.InvalidArgument, "get", "", "no range from 0 on")}, fserror.Damaged},
		"gone":    {answers{err: fserror.New(fserror.NotFound, "get", "", "gone")}, fserror.Damaged},
		"away":    {answers{err: fserror.New(fserror.Unavailable, "get", "", "away")}, fserror.Unavailable},
		"broken off": {answers{body: io.MultiReader(bytes.NewReader(some), iotest.ErrReader(
			&fserror.Error{Kind: fserror.Unavailable, Message: "broken off", Err: io.ErrUnexpectedEOF}))}, fserror.Unavailable},
		"a bad sector": {answers{body: iotest.ErrReader(syscall.EIO)}, fserror.Damaged},
		"over": {answers{body: io.MultiReader(bytes.NewReader(some), iotest.ErrReader(
			&fserror.Error{Kind: fserror.Deadline, Err: context.DeadlineExceeded}))}, fserror.Deadline},
	} {
		s := source{backups.Contents{Tree: namespace.New(), Store: c.store}}
		err := s.ReadBlock(t.Context(), &backups.Message{Url: blockstore.Key{Term: 1, Seq: 2}.String()}, make([]byte, 100))
		if fserror.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
}
