package client

import (
	"testing"
	"testing/synctest"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Close of the FS ends though a Writer is being cut meanwhile: by that one the file is closed
// if it cannot be cut any more.
func TestCloseBesideCut(t *testing.T) {
	for name, refused := range map[string]error{
		"done too late": nil,
		"refused":       fserror.New(fserror.Permission, "", "", "no"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, goOn := newFake(), make(chan struct{})
				fs := start(t, f)
				w := mustCreate(t, fs, "/a")
				_, err := w.Write([]byte("text"))
				check(t, err)
				f.set(func() {
					f.before = func(_ string, req any) error {
						if _, is := req.(*pb.AppendRequest); !is {
							return nil
						}
						<-goOn
						return refused
					}
				})
				cut, closed := make(chan error, 1), make(chan error, 1)
				go func() { _, err := w.Cut(t.Context(), 1); cut <- err }()
				synctest.Wait()
				go func() { closed <- fs.Close() }()
				synctest.Wait()
				close(goOn)
				if err := <-cut; err == nil {
					t.Error("cut in spite of Close")
				}
				check(t, <-closed)
				f.set(func() {
					if f.files["/a"].open != nil {
						t.Error("the file is open")
					}
				})
			})
		})
	}
}
