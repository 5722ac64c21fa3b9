package namenode_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode"
)

// images are the files of images in the folder that the namenodes share, by name.
func (p *pair) images() (paths []string) {
	p.t.Helper()
	err := filepath.WalkDir(p.blocks, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasPrefix(d.Name(), "image-") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return paths
}

// TestImageThatDoesNotFit: a namespace continues from an older image, and then a newer
// one of what it was before turns up, in which the next record makes no sense: it
// is of a directory that there never was. A start passes over that image.
func TestImageThatDoesNotFit(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	once := func(do func(*client.FS), mods ...func(*namenode.Config)) {
		t.Helper()
		cfg, _ := p.config(mods...)
		s := p.active(cfg)
		do(p.client(cfg.Listen))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	once(func(f *client.FS) {
		for i := range 2 {
			check(f.WriteFile(t.Context(), fmt.Sprint("/old", i), nil))
			_, err := f.Admin().Checkpoint(t.Context())
			check(err)
		}
	})
	both := p.images()
	if len(both) != 2 {
		t.Fatalf("images %v, want two", both)
	}
	late, err := os.ReadFile(both[1])
	check(err)
	check(os.Remove(both[1]))
	p.forgetJournal()
	made := []string{"/old0"}
	once(func(f *client.FS) {
		check(f.Mkdir(t.Context(), "/dir", 0o755))
		for i := range 30 { // the journal goes far beyond that image
			made = append(made, fmt.Sprint("/dir/new", i))
			check(f.WriteFile(t.Context(), made[len(made)-1], nil))
		}
	})
	check(os.WriteFile(both[1], late, 0o600))
	var log lines
	once(func(f *client.FS) {
		for _, path := range made {
			_, err := f.Stat(t.Context(), path)
			check(err)
		}
	}, func(c *namenode.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if !log.has("does not fit the journal") {
		t.Error("the start did not try the image of the other history")
	}
}
