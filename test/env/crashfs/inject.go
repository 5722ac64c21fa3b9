package crashfs

import (
	"fmt"
	"math"
	"path"
	"syscall"
)

type opKind uint8

const (
	opWrite opKind = iota
	opSync
)

type failure struct {
	op    opKind
	match string
	err   error
}

// CrashAt lets point n, counted from 1 over the life of the file system, and
// everything after it fail with ErrCrashed. Point n itself was under way: Torn
// may find it done, in part or not at all. 0 takes it back.
func (f *FS) CrashAt(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashAt = n
}

// Ops is how many points there have been.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// FailSync makes each Sync of a file, and SyncDir of a directory, whose base
// name matches (as path.Match) fail with err, or with EIO if that is nil, until
// Heal.
func (f *FS) FailSync(match string, err error) { f.fail(opSync, match, err) }

// FailWrite makes each Write and Truncate of a file whose base name matches (as
// path.Match) fail with err, or with EIO if that is nil, until Heal. Nothing of
// it is written.
func (f *FS) FailWrite(match string, err error) { f.fail(opWrite, match, err) }

func (f *FS) fail(op opKind, match string, err error) {
	if _, perr := path.Match(match, ""); perr != nil {
		panic("crashfs: " + match + ": " + perr.Error())
	}
	if err == nil {
		err = syscall.EIO
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = append(f.failures, failure{op, match, err})
}

// Heal ends all injected failures, the limit of Capacity and ReadOnly.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures, f.capacity, f.readOnly = nil, math.MaxInt64, false
}

func (f *FS) injected(op opKind, name string) error {
	for _, x := range f.failures {
		if x.op != op {
			continue
		}
		if ok, _ := path.Match(x.match, path.Base(name)); ok { // the pattern was checked
			return x.err
		}
	}
	return nil
}

// Capacity limits the bytes of all files together. A write beyond it is short
// and fails with ENOSPC. Removing files makes room.
func (f *FS) Capacity(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = bytes
}

// ReadOnly makes everything that changes something fail with EROFS.
func (f *FS) ReadOnly(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readOnly = on
}

// Corrupt flips the lowest bit of the byte at offset of a file, on the disk and
// in what is read back. It fails if there is no such byte.
func (f *FS) Corrupt(name string, offset int64) error { return f.CorruptBit(name, offset, 0) }

// CorruptBit is Corrupt for bit 0 to 7.
func (f *FS) CorruptBit(name string, offset int64, bit uint) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.lookup(name)
	if err != nil {
		return pathErr("corrupt", name, err)
	}
	if offset < 0 || offset >= int64(len(n.live)) || bit > 7 {
		return pathErr("corrupt", name, fmt.Errorf("no byte %d bit %d", offset, bit))
	}
	mask := byte(1) << bit
	n.live[offset] ^= mask
	if offset < int64(len(n.disk)) {
		n.disk[offset] ^= mask
	}
	for _, op := range n.ops { // data of an op is never shared
		if i := offset - op.off; op.data != nil && i >= 0 && i < int64(len(op.data)) {
			op.data[i] ^= mask
		}
	}
	return nil
}

// Reseed changes what Torn chooses from now on.
func (f *FS) Reseed(seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seed = seed
}
