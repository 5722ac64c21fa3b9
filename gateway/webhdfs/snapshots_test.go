package webhdfs_test

import (
	"context"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/gateway/webhdfs"
	"github.com/leasefs/leasefs/test/env"
)

// TestSnapshots: the operations about snapshots answer as HDFS's do, and so do those that meet what is
// in one.
func TestSnapshots(t *testing.T) {
	n := env.Start(t)
	s := gateway(t, n)
	for _, path := range []string{"/d/f", "/d/gone", "/d/moved"} {
		if got := both(t, s, "PUT", path+"?op=CREATE&user.name=root", "content"); got.status != 201 {
			t.Fatal(got.status, got.body)
		}
	}
	for _, c := range []struct {
		method, url string
		status      int
		parts       string // separated by spaces
	}{
		{"GET", "/?op=GETSNAPSHOTTABLEDIRECTORYLIST", 200, `{"SnapshottableDirectoryList":null}`},
		{"PUT", "/d?op=CREATESNAPSHOT&snapshotname=s", 403, `"SnapshotException" /d"`},
		{"GET", "/d?op=GETSNAPSHOTLIST", 403, `"SnapshotException" snapshottable`},
		{"PUT", "/d?op=ALLOWSNAPSHOT&user.name=ann", 403, `"AccessControlException"`},
		{"PUT", "/d?op=ALLOWSNAPSHOT", 200, ""},
		{"GET", "/d?op=GETFILESTATUS", 200, `"snapshotEnabled":true`},
		{"GET", "/?op=LISTSTATUS", 200, `"pathSuffix":"d" "snapshotEnabled":true`},
		{"PUT", "/x?op=ALLOWSNAPSHOT", 404, `"FileNotFoundException"`},
		{"PUT", "/d/f?op=ALLOWSNAPSHOT", 403, `"PathIsNotDirectoryException"`},
		{"PUT", "/d?op=CREATESNAPSHOT&snapshotname=s", 200, `{"Path":"/d/.snapshot/s"}`},
		{"PUT", "/d?op=CREATESNAPSHOT&snapshotname=s", 403, `"SnapshotException"`},
		{"PUT", "/d?op=CREATESNAPSHOT&snapshotname=a/b", 400, `"InvalidPathException"`},
		{"PUT", "/d?op=CREATESNAPSHOT&snapshotname=x&user.name=ann", 403, `"AccessControlException"`},
		{"PUT", "/d/new?op=MKDIRS", 200, "true"},
		{"DELETE", "/d/gone?op=DELETE", 200, "true"},
		{"PUT", "/d/moved?op=RENAME&destination=/d/there", 200, "true"},
		{"PUT", "/d/f?op=SETPERMISSION&permission=600", 200, ""},
		{"GET", "/d?op=LISTSTATUS", 200, `"pathSuffix":"new"`},
		{"GET", "/d/.snapshot?op=LISTSTATUS", 200, `"pathSuffix":"s"`},
		{"GET", "/d/.snapshot/s?op=LISTSTATUS", 200, `"pathSuffix":"gone" "pathSuffix":"moved"`},
		{"GET", "/d/.snapshot/s/f?op=GETFILESTATUS", 200, `"permission":"644" "length":7`},
		{"GET", "/d/.snapshot/s/gone?op=GETFILEBLOCKLOCATIONS", 200, `"length":7`},
		{"GET", "/?op=GETSNAPSHOTTABLEDIRECTORYLIST", 200, `"parentFullPath":"/" "pathSuffix":"d" "snapshotNumber":1 "snapshotQuota":1024`},
		{"GET", "/d?op=GETSNAPSHOTLIST", 200, `"deletionStatus":"ACTIVE" "pathSuffix":"s" "fullPath":"/d" "snapshotID":1`},
		{"GET", "/d?op=GETSNAPSHOTDIFF&oldsnapshotname=s&snapshotname=", 200, `{"SnapshotDiffReport":{"diffList":[{"sourcePath":"","type":"MODIFY"},{"sourcePath":"new","type":"CREATE"},{"sourcePath":"gone","type":"DELETE"},{"sourcePath":"moved","targetPath":"there","type":"RENAME"},{"sourcePath":"f","type":"MODIFY"}],"fromSnapshot":"s","snapshotRoot":"/d","toSnapshot":""}}`},
		{"GET", "/d?op=GETSNAPSHOTDIFF&oldsnapshotname=none", 403, `"SnapshotException"`},
		{"GET", "/d?op=GETSNAPSHOTDIFFLISTING&oldsnapshotname=s&snapshotname=", 200, `"modifyList":[{" "createList":[{" "deleteList":[{" "isFromEarlier":true "lastIndex":-1 "lastPath":"" "sourcePath":"moved","targetPath":"there" "isReference":true`},
		{"GET", "/d?op=GETSNAPSHOTDIFFLISTING&oldsnapshotname=s&snapshotdiffstartpath=nonsense", 400, `"HadoopIllegalArgumentException"`},
		{"PUT", "/d/.snapshot/s/new?op=MKDIRS", 403, `"SnapshotAccessControlException"`},
		{"PUT", "/d/.snapshot/s/f?op=SETPERMISSION&permission=600", 403, `"SnapshotAccessControlException"`},
		{"DELETE", "/d/.snapshot/s/f?op=DELETE", 403, `"SnapshotAccessControlException"`},
		{"POST", "/d/.snapshot/s/f?op=TRUNCATE&newlength=1", 403, `"SnapshotAccessControlException"`},
		{"DELETE", "/d?op=DELETE&recursive=true", 403, `"SnapshotException"`},
		{"PUT", "/d?op=DISALLOWSNAPSHOT", 403, `"SnapshotException"`},
		{"PUT", "/d?op=RENAMESNAPSHOT&oldsnapshotname=s", 400, `"IllegalArgumentException"`},
		{"PUT", "/d?op=RENAMESNAPSHOT&oldsnapshotname=s&snapshotname=t", 200, ""},
		{"PUT", "/d?op=RENAMESNAPSHOT&oldsnapshotname=s&snapshotname=u", 403, `"SnapshotException"`},
		{"DELETE", "/d?op=DELETESNAPSHOT", 400, `"IllegalArgumentException"`},
		{"DELETE", "/d?op=DELETESNAPSHOT&snapshotname=s", 403, `"SnapshotException"`},
		{"PUT", "/d?op=CREATESNAPSHOT", 200, `{"Path":"/d/.snapshot/s2`},
	} {
		url := c.url
		if !strings.Contains(url, "user.name") {
			url += "&user.name=root"
		}
		got := once(t, s, c.method, url, "")
		if got.status != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.url, got.status, got.body)
		}
		for part := range strings.FieldsSeq(c.parts) {
			if !strings.Contains(got.body, part) {
				t.Errorf("%s %s: %s, without %s", c.method, c.url, got.body, part)
			}
		}
	}
	want(t, "what was", both(t, s, "GET", "/d/.snapshot/t/gone?op=OPEN&user.name=root", ""), 200, "content")
	want(t, "the end", once(t, s, "DELETE", "/d?op=DELETESNAPSHOT&snapshotname=t&user.name=root", ""), 200, "")
	want(t, "gone", once(t, s, "GET", "/d/.snapshot/t/gone?op=OPEN&user.name=root", ""), 404, "FileNotFoundException")
}

// TestReportHasAPlace: a report that is made whole has a place among those that a gateway makes at once,
// until its client has it.
func TestReportHasAPlace(t *testing.T) {
	n := env.Start(t)
	var at atomic.Pointer[webhdfs.Server]
	var under atomic.Int64
	s := gateway(t, n, func(c *webhdfs.Config) {
		c.Client.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if path.Base(method) == "DiffSnapshots" {
					under.Store(at.Load().Reports())
				}
				return next(ctx, method, req, reply, cc, opts...)
			})}
	})
	at.Store(s)
	for _, url := range []string{"/d?op=MKDIRS", "/d?op=ALLOWSNAPSHOT", "/d?op=CREATESNAPSHOT&snapshotname=s"} {
		want(t, url, once(t, s, "PUT", url+"&user.name=root", ""), 200, "")
	}
	want(t, "the report", once(t, s, "GET", "/d?op=GETSNAPSHOTDIFF&oldsnapshotname=s&user.name=root", ""), 200, "SnapshotDiffReport")
	if n := under.Load(); n != 1 {
		t.Errorf("%d have a place while it is made, want the one", n)
	}
	env.Eventually(t, "the place is given back", func() bool { return s.Reports() == 0 })
}
