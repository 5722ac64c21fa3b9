package webhdfs_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/gateway/webhdfs"
)

// strange are the paths, values and parameters of requests that no client of WebHDFS makes.
var strange = struct{ paths, values, params []string }{
	[]string{"/f", "/", "/d", "/d/f", "/d/new", "", "/a\x00b", "/\xff", "/../f", "//d//f/", "/" + strings.Repeat("x", 256), strings.Repeat("/x", 5000), "/d/.snapshot/s"},
	[]string{
		"/f", "", "/", "null", "true", "0", "-1", "1", "9223372036854775807", "-9223372036854775808", "99999999999999999999", "1e3", "\x00", "\xff", "\n", ",", ",,,", "=", "../f",
		"/d/other", "user.a", "user.", ".", "trusted.a", "0x", "0xzz", "0s!", `"`, "CREATE,REPLACE,", "OVERWRITE,NONE", "rwx", "user:eve:rwx,default:mask::rwx", "user::", "07777", "1777", strings.Repeat("9", 300),
		strings.Repeat("x", 5000), strings.Repeat("/f,", 5000),
	},
	[]string{
		"offset", "length", "permission", "unmaskedpermission", "overwrite", "createparent", "createflag", "replication", "blocksize", "expectedlength", "destination", "renameoptions", "recursive",
		"namespacequota", "storagespacequota", "owner", "group", "modificationtime", "accesstime", "newlength", "sources", "fsaction", "startafter", "xattr.name", "xattr.value", "flag", "encoding", "aclspec",
		"oldsnapshotname", "snapshotname", "snapshotdiffstartpath", "renewer", "token", "clientname", "inode", "opening", "noredirect",
	},
}

// TestStrangeRequests: whatever is in a request, it is answered by a result or by an error of a Java
// name; none ends in a fault, and what is not the caller's stays.
func TestStrangeRequests(t *testing.T) {
	n, s := start(t)
	fs := n.Client(t)
	if err := fs.WriteFile(t.Context(), "/f", []byte("content")); err != nil {
		t.Fatal(err)
	}
	want(t, "mkdir", once(t, s, "PUT", "/d?op=MKDIRS", ""), 200, "true")
	want(t, "chmod", once(t, s, "PUT", "/d?op=SETPERMISSION&permission=777", ""), 200, "")
	want(t, "allow", once(t, s, "PUT", "/d?op=ALLOWSNAPSHOT", ""), 200, "")
	want(t, "make", once(t, s, "PUT", "/d?op=CREATESNAPSHOT&snapshotname=s", ""), 200, "")
	i := 0
	for method, ops := range webhdfs.Operations() {
		for _, op := range ops {
			for _, path := range strange.paths {
				for range 6 {
					i++
					q := url.Values{"op": {op}, "user.name": {"eve"}, "data": {"true"}}
					for k, name := range strange.params {
						if (i+k)%3 != 0 {
							q.Set(name, strange.values[(7*i+k)%len(strange.values)])
						}
					}
					u := url.URL{Scheme: "http", Host: s.Addr(), Path: "/webhdfs/v1" + path, RawQuery: q.Encode()}
					req, err := http.NewRequestWithContext(t.Context(), method, u.String(), strings.NewReader("body"))
					if err != nil {
						t.Fatal(err)
					}
					resp, err := http.DefaultTransport.RoundTrip(req)
					if err != nil {
						t.Fatalf("%s %s: %v", method, u.String()[:min(len(u.String()), 2000)], err)
					}
					body, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					var x struct {
						RemoteException struct{ Exception, JavaClassName, Message string }
					}
					if resp.StatusCode >= 400 && err == nil {
						err = json.Unmarshal(body, &x)
					}
					e := x.RemoteException
					if err != nil || resp.StatusCode >= 500 || resp.StatusCode >= 400 && (e.Exception == "" || e.Message == "" || !strings.Contains(e.JavaClassName, ".") || strings.Contains(e.Message, "\n")) {
						t.Fatalf("%s %.2000s: %d %.500s, %v", method, u.String(), resp.StatusCode, body, err)
					}
				}
			}
		}
	}
	if got, err := fs.ReadFile(t.Context(), "/f"); err != nil || string(got) != "content" {
		t.Errorf("another's file: %q, %v", got, err)
	}
	st, err := fs.Stat(t.Context(), "/f")
	if err != nil || st.User != "root" || st.Mode() != 0o644 || st.Open != nil {
		t.Errorf("another's file: %v, %v", st, err)
	}
	t.Logf("%d requests", i)
}
