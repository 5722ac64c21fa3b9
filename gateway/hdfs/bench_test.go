package hdfs_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	native "github.com/colinmarc/hdfs/v2"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs"
	"github.com/leasefs/leasefs/test/env"
)

// BenchmarkCalls asks for a file, lists a directory of 100 files, whose replication is not the
// default, and makes empty files (create and complete), over 32 connections at once. Clients, gateway and namenode share the process;
// within: the gateway makes its calls as one of namenode --hdfs does.
func BenchmarkCalls(b *testing.B) {
	n := env.Start(b)
	fs := n.Client(b)
	check(b, fs.Mkdir(b.Context(), "/d", 0o755))
	for i := range 100 {
		attr := []client.Xattr{{Name: hadoop.AttrXattr, Value: []byte("replication=1")}}
		check(b, fs.WriteFile(b.Context(), fmt.Sprintf("/d/f%d", i), nil, client.WithXattrs(attr)))
	}
	var made atomic.Int64
	for _, where := range []string{"apart", "within"} {
		s := gateway(b, n, func(c *hdfs.Config) {
			if where == "within" {
				c.Client.DialOptions = append(c.Client.DialOptions, grpc.WithChainUnaryInterceptor(n.Local()))
			}
		})
		clients := make(chan *native.Client, 32)
		for range cap(clients) {
			clients <- connect(b, s, "root")
		}
		for _, call := range []struct {
			name string
			make func(c *native.Client) error
		}{
			{"stat", func(c *native.Client) error { _, err := c.Stat("/d/f1"); return err }},
			{"list", func(c *native.Client) error { _, err := c.ReadDir("/d"); return err }},
			{"create", func(c *native.Client) error { return c.CreateEmptyFile(fmt.Sprint("/", made.Add(1))) }},
		} {
			b.Run(call.name+"/"+where, func(b *testing.B) {
				b.SetParallelism(cap(clients))
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						c := <-clients
						err := call.make(c)
						if clients <- c; err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
