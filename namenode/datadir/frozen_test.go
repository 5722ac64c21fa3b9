package datadir

import (
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/namespace/levels"
)

// TestFrozenVersion: VERSION as a release of each level wrote it is read for ever; that of the newest
// level is still written so.
func TestFrozenVersion(t *testing.T) {
	for file, want := range map[string]Version{
		"version-1": {Format: 1, Namespace: "010ba16cae0f88c1a751ef8095a32547", Created: "2026-11-28T19:38:32Z", By: "leasefs level-1"},
		"version-2": {
			Format: 2, Namespace: "2d50c538aa07bb878a2db4501371d8be", Created: "2026-11-28T19:38:37Z", By: "leasefs level-2",
			BackupTxID: 7, Incarnation: "ffeeddccbbaa99887766554433221100", Release: "level-2",
		},
	} {
		raw, err := os.ReadFile("../../testdata/frozen/" + file)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := ParseVersion(raw)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", file, got, err)
		}
		written, err := toml.Marshal(got)
		if err != nil || want.At().Level == levels.Newest() && string(written) != string(raw) {
			t.Errorf("%s is now written as\n%s%v", file, written, err)
		}
	}
}

// TestUpdates: who changes something in VERSION leaves what another changes at the same time.
func TestUpdates(t *testing.T) {
	d, err := Open(vfs.OS(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Finish(levels.State{Level: 1}, "x", "now"); err != nil {
		t.Fatal(err)
	}
	const last = 50
	var both sync.WaitGroup
	for _, change := range []func(v *Version, n int){
		func(v *Version, n int) { v.Format = n },
		func(v *Version, n int) { v.Incarnation = strconv.Itoa(n) },
	} {
		both.Go(func() {
			for n := range last {
				if err := d.Update(func(v *Version) { change(v, n+1) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	both.Wait()
	raw, err := vfs.ReadFile(d.fs, d.File(VersionFile))
	if err != nil {
		t.Fatal(err)
	}
	if v, _, err := ParseVersion(raw); err != nil || v.Format != last || v.Incarnation != strconv.Itoa(last) {
		t.Errorf("%+v, %v", v, err)
	}
}

// full is a disk that takes no new file once it is full.
type full struct {
	vfs.FS
	is bool
}

func (f *full) Create(name string) (vfs.File, error) {
	if f.is {
		return nil, fserror.New(fserror.NoSpace, "", name, "no space left on device")
	}
	return f.FS.Create(name)
}

// TestUpdateFails: what could not be written is not taken for written, so that it is tried again.
func TestUpdateFails(t *testing.T) {
	disk := &full{FS: vfs.OS()}
	d, err := Open(disk, t.TempDir(), nil)
	if err == nil {
		err = d.Finish(levels.State{Level: 1}, "x", "now")
	}
	if err != nil {
		t.Fatal(err)
	}
	disk.is = true
	if err := d.Update(func(v *Version) { v.Format = 2 }); fserror.KindOf(err) != fserror.NoSpace || d.Info.Format != 1 {
		t.Errorf("%v, format %d", err, d.Info.Format)
	}
}

// What VERSION says can be asked for while it changes: the race detector is the judge.
func TestVersionBesideUpdate(t *testing.T) {
	d, err := Open(vfs.OS(), t.TempDir(), nil)
	if err == nil {
		err = d.Finish(levels.State{Level: 1}, "x", "now")
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- d.Update(func(v *Version) { v.Format, v.Release = 2, "x" }) }()
	if v := d.Version(); (v.Format == 2) != (v.Release == "x") {
		t.Errorf("half of a change: %+v", v)
	}
	if err := <-done; err != nil || d.Version().Format != 2 {
		t.Errorf("%v, %+v", err, d.Version())
	}
}
