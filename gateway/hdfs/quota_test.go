package hdfs_test

import (
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// TestQuotas: setQuota, getQuotaUsage and getContentSummary do what they do in HDFS, and what
// exceeds a quota is refused by the names that Hadoop's client knows.
func TestQuotas(t *testing.T) {
	n, s := start(t)
	r, fs := dial(t, s, "root", ""), n.Client(t)
	check(t, fs.MkdirAll(t.Context(), "/q/d", 0o777), fs.WriteFile(t.Context(), "/q/f", []byte("12345")), fs.WriteFile(t.Context(), "/f", []byte("123456")))
	const keep, clears = math.MaxInt64, math.MaxUint64
	set := func(path string, names, space uint64) error {
		return r.call(clientProtocol, "setQuota", &pb.SetQuotaRequestProto{Path: &path, NamespaceQuota: &names, StoragespaceQuota: &space}, new(pb.EmptyProto))
	}
	shows := func(path, usage, summary string) {
		t.Helper()
		u := ask(r, "getQuotaUsage", of(path), new(pb.GetQuotaUsageResponseProto)).GetUsage()
		c := ask(r, "getContentSummary", of(path), new(pb.GetContentSummaryResponseProto)).GetSummary()
		if got := fmt.Sprint(u.GetFileAndDirectoryCount(), int64(u.GetQuota()), u.GetSpaceConsumed(), int64(u.GetSpaceQuota())); got != usage {
			t.Errorf("%s: %s, not %s", path, got, usage)
		}
		if got := fmt.Sprint(c.GetFileCount(), c.GetDirectoryCount(), c.GetLength(), int64(c.GetQuota()), c.GetSpaceConsumed(), int64(c.GetSpaceQuota())); got != summary {
			t.Errorf("%s: %s, not %s", path, got, summary)
		}
	}
	shows("/q", "3 -1 5 -1", "1 2 5 -1 5 -1")
	check(t, set("/q", 4, keep), set("/q", keep, 10))
	shows("/q", "3 4 5 10", "1 2 5 4 5 10")
	shows("/q/d", "1 -1 0 -1", "0 1 0 -1 0 -1") // of the directory itself only
	mkdirs := func(path string) error {
		return r.call(clientProtocol, "mkdirs", &pb.MkdirsRequestProto{Src: &path, Masked: &pb.FsPermissionProto{Perm: proto.Uint32(0o755)}, CreateParent: proto.Bool(true)}, new(pb.BoolResponseProto))
	}
	wantClass(t, "two names", mkdirs("/q/d/a/b"), hadoop.NamesOverQuota)
	wantClass(t, "bytes", r.call(clientProtocol, "concat", &pb.ConcatRequestProto{Trg: proto.String("/q/f"), Srcs: []string{"/f"}}, new(pb.EmptyProto)), hadoop.BytesOverQuota)
	check(t, set("/q", clears, keep), mkdirs("/q/d/a/b"), set("/q", keep, clears))
	shows("/q", "5 -1 5 -1", "1 4 5 -1 5 -1")
	wantClass(t, "no number", set("/q", math.MaxUint64-1, keep), hadoop.IllegalArgument)
	wantClass(t, "a file", set("/q/f", 5, keep), hadoop.ParentNotDirectory)
	wantClass(t, "by type", r.call(clientProtocol, "setQuota", &pb.SetQuotaRequestProto{Path: proto.String("/q"), NamespaceQuota: proto.Uint64(1), StoragespaceQuota: proto.Uint64(1), StorageType: pb.StorageTypeProto_SSD.Enum()}, new(pb.EmptyProto)), hadoop.Unsupported)
	r = dial(t, s, "ann", "")
	wantClass(t, "ann", set("/q", 5, keep), hadoop.AccessControl)
}

// TestQuotaOfWriters: who writes more than a quota has room for is told why when he completes the
// file, which has what fitted.
func TestQuotaOfWriters(t *testing.T) {
	n, s := start(t)
	c, fs := connect(t, s, "root"), n.Client(t)
	check(t, fs.MkdirAll(t.Context(), "/q", 0o777), quota.Set(t.Context(), fs, "/q", quota.None, 10))
	for _, size := range []int{11, 3 << 20} {
		w, err := c.CreateFile("/q/f", 1, 1<<20, 0o644)
		check(t, err)
		_, _ = w.Write(random(size, 1)) // it may not be told yet
		wantClass(t, fmt.Sprint(size), w.Close(), hadoop.BytesOverQuota)
		q, err := quota.Of(t.Context(), fs, "/q")
		check(t, err)
		if q.UsedBytes > 10 {
			t.Errorf("%+v", q)
		}
		check(t, fs.Remove(t.Context(), "/q/f"))
	}
	w, err := c.CreateFile("/q/f", 1, 1<<20, 0o644)
	check(t, err)
	_, err = w.Write(random(10, 1))
	check(t, err, w.Close())
	holds(t, c, fs, "/q/f", random(10, 1))
}
