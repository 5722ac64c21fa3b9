// Package levels has the one table of a namespace's feature levels.
//
// A level says what may be written into the journal, images and everything else that an
// older program has to read. The tree holds the level, and a record raises it when an
// operator says so: until then a new release writes what the one before it reads, so its
// namenodes can be replaced one by one, and be taken back. A level is also the format of the
// data folder and of the namespace in ZooKeeper, which a program looks at before all else.
//
// Who adds a kind of record, or a part of images, adds it to the newest level that no release
// has yet, or to a new one ([ADR 0044] says how).
//
// [ADR 0044]: https://github.com/leasefs/leasefs/blob/main/docs/adr/0044-rolling-upgrades.md
package levels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/codec"
)

// Level is what a namespace may hold.
type Level struct {
	Image   uint32  // the version of its images
	Records []uint8 // the kinds of records that it adds to those of the levels below
	Brings  string  // what it adds, for people
}

// First is the level of namespaces that no record has raised.
const First = 1

// table has the levels from First on.
var table = []Level{
	{Image: 12, Brings: "what the first release has"},
	{Image: 13, Records: []uint8{Raise, 42, 46}, Brings: "quotas, snapshots"},
}

// Raise is the kind of the record that raises the level. It is of the second level, and the
// first one of each level from there on.
const Raise = 45

// Newest is the highest level that this program knows.
func Newest() uint64 { return uint64(len(table)) }

// At is what a level is; it must be from First to Newest.
func At(level uint64) Level { return table[level-First] }

// Of is the level that brings a kind of record.
func Of(kind uint8) uint64 {
	for i, l := range table {
		if slices.Contains(l.Records, kind) {
			return uint64(i) + First //nolint:gosec // an index
		}
	}
	return First
}

// Check refuses a record of a level that the namespace does not have.
func Check(level uint64, kind uint8) error {
	needs := Of(kind)
	if needs <= level {
		return nil
	}
	return fserror.New(fserror.Unsupported, "", "", "%s: feature level %d has this, and the namespace is at level %d, so that the release before can still serve it", At(needs).Brings, needs, level).
		Because(fserror.ReasonLevel)
}

// Between is what raising a namespace from one level to another brings, for people.
func Between(from, to uint64) string {
	var brings []string
	for l := from + 1; l <= min(to, Newest()); l++ {
		brings = append(brings, At(l).Brings)
	}
	return strings.Join(brings, ", ")
}

// State is at which level a namespace is.
type State struct {
	Level   uint64
	Release string // of leasefs, which raised it; empty: none did, or nobody says which
}

// Code codes a state. The release is first: an older program finds it at the beginning of an
// image that it cannot read (codec.NewImageReader).
func (s *State) Code(c *codec.Coder) {
	c.Text(&s.Release)
	c.U64(&s.Level)
}

// CodeImage is Code in an image of that version.
func (s *State) CodeImage(c *codec.Coder, version uint32) {
	s.Code(c)
	if s.Level < First || s.Level <= Newest() && At(s.Level).Image != version {
		c.Fail(fmt.Sprintf("level %d is not one of version %d", s.Level, version))
	}
}

// Known refuses what is at a level above this program's.
func (s State) Known(what string) error {
	if s.Level > Newest() {
		return s.Newer(what)
	}
	return nil
}

// Newer is the error of a program that does not know the level.
func (s State) Newer(what string) error {
	use := "install the release that raised it, or a newer one"
	if s.Release != "" {
		use = fmt.Sprintf("leasefs %s raised it; install that release or a newer one", s.Release)
	}
	return fserror.New(fserror.Unsupported, "", "", "%s is at feature level %d, and this release of leasefs knows levels up to %d: %s", what, s.Level, Newest(), use).
		Because(fserror.ReasonNewer)
}
