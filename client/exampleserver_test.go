package client_test

import (
	"context"
	"os"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode"
)

// startNamenode starts a namenode for an example, in this process.
func startNamenode() (address string, stop func()) {
	dir, err := os.MkdirTemp("", "leasefs-example-") //nolint:usetesting // an example has no test
	if err != nil {
		panic(err)
	}
	s, err := namenode.Start(context.Background(), namenode.Config{ //nolint:usetesting // as above
		Data: dir, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Groups: func(string) []string { return nil }, Limits: namenode.Limits{Reserve: 1 << 20},
	})
	if err != nil {
		panic(err)
	}
	return s.Addr(), func() {
		_ = s.Close()
		_ = os.RemoveAll(dir)
	}
}

// connect is startNamenode with a client of it.
func connect() (fsys *client.FS, stop func()) {
	address, end := startNamenode()
	fsys, err := client.New(context.Background(), client.Config{Namenodes: []string{address}}) //nolint:usetesting // as above
	if err != nil {
		panic(err)
	}
	return fsys, func() {
		_ = fsys.Close()
		end()
	}
}
