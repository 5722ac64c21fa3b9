package files

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/test/env"
)

// TestRecoverOfOneFile: if the name goes to another file, or the file to another writer, while a lease
// is recovered, the file that ends here is the one whose lease has ended.
func TestRecoverOfOneFile(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, r *rig, fs *client.FS) error{
		"another name": func(t *testing.T, _ *rig, fs *client.FS) error {
			if err := fs.Rename(t.Context(), "/f", "/g", false); err != nil {
				return err
			}
			return fs.WriteFile(t.Context(), "/f", []byte("closed"))
		},
		"another writer": func(t *testing.T, r *rig, fs *client.FS) error {
			if _, err := fs.Recover(t.Context(), "/f", true); err != nil {
				return err
			}
			_, err := r.Append(t.Context(), r.u, name+" 2", "/f", false, false)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			inode, _, p := r.create("/f", 1<<20)
			if _, err := p.Write(0, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			fs := r.nn.Client(t)
			var wire env.Wire
			life, kill := context.WithCancel(t.Context())
			defer kill()
			others := users.New(life, client.Config{Namenodes: []string{r.nn.Addr()}, Timeout: time.Minute, DialOptions: wire.DialOptions()}, 1, nil)
			defer others.Close()
			u, err := others.Get(t.Context(), users.Key{User: "root"})
			if err != nil {
				t.Fatal(err)
			}
			defer others.Release(u)
			var once sync.Once
			wire.Set(func(method string, _ any, send func() error) error {
				if method == "Recover" {
					once.Do(func() {
						if err := happens(t, r, fs); err != nil {
							t.Error(err)
						}
					})
				}
				return send()
			})
			if done, err := r.Recover(t.Context(), u, "/f"); err != nil || !done {
				t.Fatal(done, err)
			}
			if closed, err := r.IsClosed(t.Context(), r.u, "/f"); err != nil || !closed {
				t.Errorf("what the name leads to is closed: %v, %v", closed, err)
			}
			l, err := u.FS.Stat(t.Context(), "/g")
			open := err == nil && l.Open != nil // where it was moved to
			if here := r.open(inode) != nil; here != open {
				t.Errorf("the file is open: %v; here: %v", open, here)
			}
		})
	}
}
