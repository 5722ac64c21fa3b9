package hdfs_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	native "github.com/colinmarc/hdfs/v2"
	krb "github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/auth"
	"github.com/leasefs/leasefs/gateway/hdfs"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/test/env/kdc"
)

// fatal reads what a server says before it ends a connection.
func fatal(t *testing.T, nc net.Conn) string {
	t.Helper()
	in := bufio.NewReader(nc)
	if _, err := io.CopyN(io.Discard, in, 4); err != nil {
		return err.Error()
	}
	var h pb.RpcResponseHeaderProto
	check(t, protodelim.UnmarshalFrom(in, &h))
	if h.GetStatus() != pb.RpcResponseHeaderProto_FATAL {
		return "the call was not refused"
	}
	return h.GetErrorMsg()
}

// TestKerberos: a client of HDFS that proves by Kerberos who it is acts as that user; who
// proves nothing is refused.
func TestKerberos(t *testing.T) {
	const realm = "HDFS.TEST"
	k := kdc.Start(t, realm)
	k.User("ann@"+realm, "secret")
	keytab := k.Keytab("nn/127.0.0.1@"+realm, filepath.Join(t.TempDir(), "keytab"))
	settings, err := os.ReadFile(k.Config)
	check(t, err)
	guard := func(protection string) func(*hdfs.Config) {
		g, err := auth.New(clock.System{}, auth.Config{Keytab: keytab, Principal: "nn/127.0.0.1@" + realm, Calls: true, Protection: protection})
		check(t, err)
		return func(c *hdfs.Config) { c.Guard = g }
	}
	n, s := start(t, guard(""))
	sealed := gateway(t, n, guard("privacy"))
	check(t, n.Client(t).Chmod(t.Context(), "/", 0o777))
	connected := func(s *hdfs.Server, principal string) (*native.Client, error) {
		conf, err := config.NewFromString(string(settings))
		check(t, err)
		who := krb.NewWithPassword(principal, realm, "secret", conf, krb.DisablePAFXFAST(true))
		check(t, who.Login())
		t.Cleanup(who.Destroy)
		c, err := native.NewClient(native.ClientOptions{Addresses: []string{s.Addr()}, KerberosClient: who, KerberosServicePrincipleName: "nn/127.0.0.1"})
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return c, err
	}
	ann, err := connected(s, "ann")
	check(t, err)
	write(t, ann, "/ann", make([]byte, 100), 1<<20)
	i, err := ann.Stat("/ann")
	check(t, err)
	if owner := i.(*native.FileInfo).Owner(); owner != "ann" {
		t.Errorf("it is %s's", owner)
	}
	if _, err := connected(sealed, "ann"); err == nil {
		t.Error("a client that cannot seal its calls is served where they have to be")
	}
	raw := func(bytes string) net.Conn {
		nc, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
		check(t, err)
		t.Cleanup(func() { _ = nc.Close() })
		check(t, nc.SetDeadline(time.Now().Add(time.Minute)))
		_, err = nc.Write([]byte(bytes))
		check(t, err)
		return nc
	}
	frame := func(id int32, m proto.Message) string {
		var b strings.Builder
		for _, m := range []proto.Message{&pb.RpcRequestHeaderProto{RpcKind: proto.Int32(2), RpcOp: proto.Int32(0), CallId: &id, ClientId: []byte("c")}, m} {
			_, err := protodelim.MarshalTo(&b, m)
			check(t, err)
		}
		return string(binary.BigEndian.AppendUint32(nil, uint32(b.Len()))) + b.String()
	}
	const sasl, context = -33, -3
	root := &pb.IpcConnectionContextProto{UserInfo: &pb.UserInformationProto{EffectiveUser: proto.String("root")}}
	state := func(s pb.RpcSaslProto_State, method, token string) proto.Message {
		m := &pb.RpcSaslProto{State: &s, Token: []byte(token)}
		if method != "" {
			m.Auths = []*pb.RpcSaslProto_Auth{{Method: &method, Mechanism: proto.String("")}}
		}
		return m
	}
	for what, c := range map[string]struct{ sent, says string }{
		"no SASL":              {"hrpc\x09\x00\x00" + frame(context, root), "SIMPLE authentication is not enabled"},
		"no proof":             {"hrpc\x09\x00\xdf" + frame(context, root), "makes no sense"},
		"a call at once":       {"hrpc\x09\x00\xdf" + frame(1, root), "before the connection said who asks"},
		"SIMPLE":               {"hrpc\x09\x00\xdf" + frame(sasl, state(pb.RpcSaslProto_INITIATE, "SIMPLE", "")), "this server offers [TOKEN, KERBEROS]"},
		"a proof not begun":    {"hrpc\x09\x00\xdf" + frame(sasl, state(pb.RpcSaslProto_RESPONSE, "", "x")), "makes no sense"},
		"it says that it is":   {"hrpc\x09\x00\xdf" + frame(sasl, state(pb.RpcSaslProto_SUCCESS, "", "")), "makes no sense"},
		"a token without end":  {"hrpc\x09\x00\xdf" + frame(sasl, state(pb.RpcSaslProto_INITIATE, "KERBEROS", strings.Repeat("x", 100<<10))), "at most"},
		"not negotiated first": {"hrpc\x09\x00\xdf" + frame(sasl, state(pb.RpcSaslProto_INITIATE, "KERBEROS", "x")), "makes no sense"},
	} {
		if got := fatal(t, raw(c.sent)); !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, should say %q", what, got, c.says)
		}
	}
	// Nonsense as a ticket, and as a response to the challenge.
	for method, says := range map[string]string{"KERBEROS": "no Kerberos ticket", "TOKEN": "DIGEST-MD5"} {
		nc := raw("hrpc\x09\x00\xdf" + frame(sasl, state(pb.RpcSaslProto_NEGOTIATE, "", "")))
		var size [4]byte
		_, err := io.ReadFull(nc, size[:])
		check(t, err)
		_, err = io.CopyN(io.Discard, nc, int64(binary.BigEndian.Uint32(size[:])))
		check(t, err)
		_, err = nc.Write([]byte(frame(sasl, state(pb.RpcSaslProto_INITIATE, method, "nonsense"))))
		check(t, err)
		if got := fatal(t, nc); !strings.Contains(got, says) {
			t.Errorf("%s: %q, should say %q", method, got, says)
		}
		if _, err := nc.Read(size[:]); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection stays open: %v", method, err)
		}
	}
}
