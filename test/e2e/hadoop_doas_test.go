package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// TestDoasFrom: who may act for others from some addresses may not from any other, by both protocols, and
// what a request says of itself changes nothing of that.
func TestDoasFrom(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, time.Minute)
	n := startBeside(ctx, t,
		"--doas", "hue users=ann,bob from=127.0.0.2,127.8.0.0/16", "--doas", "knox from=127.0.0.3", "--doas", "knox users=ann from=127.0.0.4", "--doas", "any users=ann")
	n.run(ctx, "mkdir", "/d")
	const refused, elsewhere = "is not allowed to impersonate", "Unauthorized connection for super-user: "
	for _, c := range []struct{ by, user, from, says string }{
		{"hue", "ann", "127.0.0.2", ""},
		{"hue", "bob", "127.8.0.1", ""},
		{"hue", "bob", "127.8.255.254", ""},
		{"hue", "ann", "127.9.0.1", elsewhere + "hue from IP 127.9.0.1"},
		{"hue", "ann", "127.0.0.1", elsewhere + "hue from IP 127.0.0.1"},
		{"hue", "ann", "127.0.0.3", elsewhere},
		{"hue", "root", "127.0.0.2", refused},
		{"knox", "root", "127.0.0.3", ""},
		{"knox", "root", "127.0.0.4", elsewhere},
		{"knox", "ann", "127.0.0.4", ""},
		{"knox", "ann", "127.0.0.2", elsewhere},
		{"any", "ann", "127.0.0.9", ""},
		{"any", "bob", "127.0.0.9", refused},
		{"eve", "ann", "127.0.0.2", refused},
		{"ann", "ann", "127.0.0.9", ""}, // for himself
	} {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}}
		web := &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.WebHDFS+"/webhdfs/v1/d?op=GETFILESTATUS&user.name="+c.by+"&doas="+c.user, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded"} { // nobody asks who wrote these
			r.Header.Set(name, "127.0.0.2")
		}
		resp, err := web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || (resp.StatusCode == http.StatusOK) != (c.says == "") || !strings.Contains(string(body), c.says) {
			t.Errorf("WebHDFS, %s for %s from %s: %d %s, %v", c.by, c.user, c.from, resp.StatusCode, body, err)
		}

		says, err := callFrom(ctx, &d, n.HDFS, hrpc(c.user, c.by))
		if err != nil || (says == "") != (c.says == "") || !strings.Contains(says, c.says) {
			t.Errorf("hdfs://, %s for %s from %s: %q, %v", c.by, c.user, c.from, says, err)
		}
	}
}

// callFrom makes a call on a connection that begins so, and returns why it is refused.
func callFrom(ctx context.Context, d *net.Dialer, addr string, begins []byte) (refused string, err error) {
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = nc.Close() }()
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	protocol, method, path := "org.apache.hadoop.hdfs.protocol.ClientProtocol", "getFileInfo", "/d"
	call := rpcFrame(1, &pb.RequestHeaderProto{MethodName: &method, DeclaringClassProtocolName: &protocol, ClientProtocolVersion: proto.Uint64(1)}, &pb.PathRequestProto{Src: &path})
	if _, err := nc.Write(append(bytes.Clone(begins), call...)); err != nil {
		return "", err
	}
	in := bufio.NewReader(nc)
	if _, err := in.Discard(4); err != nil {
		return "", err
	}
	var h pb.RpcResponseHeaderProto
	if err := protodelim.UnmarshalFrom(in, &h); err != nil {
		return "", err
	}
	if h.GetStatus() == pb.RpcResponseHeaderProto_SUCCESS {
		return "", nil
	}
	if h.GetErrorMsg() == "" {
		return "", errors.New(fmt.Sprint(&h))
	}
	return h.GetErrorMsg(), nil
}
