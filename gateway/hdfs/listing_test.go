package hdfs_test

import (
	"context"
	"fmt"
	"path"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hdfs"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/test/env"
)

// TestListingOfWhatGoes: a listing with blocks continues behind a page whose entries have all gone meanwhile.
// A client takes an empty page for one without an end, or for the end.
func TestListingOfWhatGoes(t *testing.T) {
	n := env.Start(t)
	fs := n.Client(t)
	check(t, fs.Mkdir(t.Context(), "/d", 0o755))
	const page = 100
	for i := range page + 1 {
		check(t, fs.WriteFile(t.Context(), fmt.Sprintf("/d/f%03d", i), []byte("x")))
	}
	var once sync.Once
	s := gateway(t, n, func(c *hdfs.Config) {
		c.Client.DialOptions = append(c.Client.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := next(ctx, method, req, reply, cc, opts...)
				if path.Base(method) == "List" {
					once.Do(func() {
						for i := range page {
							if err := fs.Remove(ctx, fmt.Sprintf("/d/f%03d", i)); err != nil {
								t.Error(err)
							}
						}
					})
				}
				return err
			}))
	})
	d := ask(dial(t, s, "root", ""), "getListing", &pb.GetListingRequestProto{Src: proto.String("/d"), StartAfter: []byte{}, NeedLocation: proto.Bool(true)}, new(pb.GetListingResponseProto)).GetDirList()
	if all := d.GetPartialListing(); len(all) != 1 || string(all[0].GetPath()) != "f100" || d.GetRemainingEntries() != 0 {
		t.Errorf("%d entries, %d remain: want the one that is left", len(all), d.GetRemainingEntries())
	}
}
