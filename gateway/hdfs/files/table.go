package files

import (
	"context"

	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Table is what a gateway has open.
type Table struct{ cfg Config }

// New returns a Table with nothing open, which has to be closed.
func New(cfg Config) *Table { return &Table{cfg: cfg} }

// Close closes all files at what has arrived.
func (t *Table) Close() {}

func unfinished() error { return fserror.New(fserror.Unsupported, "hdfs", "", "not written yet") }

func (t *Table) Create(ctx context.Context, u *users.User, client, path string, c Create) (Opened, error) {
	return Opened{}, unfinished()
}
func (t *Table) Append(ctx context.Context, u *users.User, client, path string, newBlock bool) (Opened, error) {
	return Opened{}, unfinished()
}
func (t *Table) AddBlock(ctx context.Context, u *users.User, client, path string, inode uint64, previous *Block) (Block, error) {
	return Block{}, unfinished()
}
func (t *Table) AbandonBlock(ctx context.Context, u *users.User, client, path string, inode uint64, b Block) error {
	return unfinished()
}
func (t *Table) UpdateBlockForPipeline(ctx context.Context, u *users.User, client string, b Block) (Block, error) {
	return Block{}, unfinished()
}
func (t *Table) UpdatePipeline(ctx context.Context, u *users.User, client string, old, new Block) error {
	return unfinished()
}
func (t *Table) Fsync(ctx context.Context, u *users.User, client, path string, inode uint64, lastLength int64) error {
	return unfinished()
}
func (t *Table) Complete(ctx context.Context, u *users.User, client, path string, inode uint64, last *Block) (bool, error) {
	return false, unfinished()
}
func (t *Table) Renew(u *users.User, client string) {}
func (t *Table) Recover(ctx context.Context, u *users.User, path string) (done bool, err error) {
	return false, unfinished()
}
func (t *Table) Truncate(ctx context.Context, u *users.User, client, path string, size int64) (done bool, err error) {
	return false, unfinished()
}
func (t *Table) IsClosed(ctx context.Context, u *users.User, path string) (bool, error) {
	return false, unfinished()
}
func (t *Table) Locate(ctx context.Context, u *users.User, path string, offset, length int64) (Located, error) {
	return Located{}, unfinished()
}
func (t *Table) VisibleLength(ctx context.Context, u *users.User, b Block) (int64, error) {
	return 0, unfinished()
}
func (t *Table) Token(u *users.User, b Block, write bool) (identifier, password []byte) {
	return nil, nil
}
