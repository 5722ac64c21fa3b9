package ipc

import (
	"bufio"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// Mechanism is a way for clients to prove who they are (SASL).
type Mechanism struct {
	Method, Name     string // as KERBEROS and GSSAPI
	Protocol, Server string // the server's name: Protocol/Server
	// Begin begins a proof. The challenge, if there is one, is sent with the offer.
	Begin func() (p Proof, challenge []byte)
}

// Proof is one that is under way, or was given. One goroutine at a time uses it, but Wrap
// another one than Unwrap.
type Proof interface {
	// Next takes what the client sends and returns what it is told. An error ends the
	// connection, and its text is the client's to see.
	Next(token []byte) (answer []byte, done bool, err error)
	// User returns for whom the client asks and who it is, by what its connection says: a
	// name, or nothing.
	User(says string) (user, by string, err error)
	// Until is when the proof expires: no call is taken after.
	Until() time.Time
	// Protects tells whether what follows is protected by Wrap and Unwrap.
	Protects() bool
	Wrap(message []byte) ([]byte, error)
	Unwrap(token []byte) ([]byte, error)
}

const (
	maxSteps   = 16        // of a proof
	maxToken   = 64 << 10  // bytes of one
	maxWrapped = 128 << 10 // bytes of a frame that has a protected piece; clients are told 64 KiB
)

// offer names the ways to prove that there are, and begins those that begin with a challenge.
func (c *conn) offer() *pb.RpcSaslProto {
	m := &pb.RpcSaslProto{State: pb.RpcSaslProto_NEGOTIATE.Enum()}
	if len(c.server.cfg.Mechanisms) == 0 {
		m.Auths = []*pb.RpcSaslProto_Auth{{Method: proto.String("SIMPLE"), Mechanism: proto.String("")}}
		return m
	}
	c.begun = map[string]Proof{}
	for _, mech := range c.server.cfg.Mechanisms {
		a := &pb.RpcSaslProto_Auth{Method: &mech.Method, Mechanism: &mech.Name, Protocol: &mech.Protocol, ServerId: &mech.Server}
		c.begun[mech.Method], a.Challenge = mech.Begin()
		m.Auths = append(m.Auths, a)
	}
	return m
}

func unauthorized(format string, args ...any) error {
	return bad(pb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED, format, args...)
}

// methods are the ways to prove that there are.
func (s *Server) methods() string {
	var names []string
	for _, m := range s.cfg.Mechanisms {
		names = append(names, m.Method)
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// negotiate is a step of a proof. Where none is asked for, SIMPLE is offered, whatever a
// client would rather have: a client that takes it says so, and waits for nothing, or just
// continues.
func (c *conn) negotiate(h *pb.RpcRequestHeaderProto, rest []byte) error {
	var m pb.RpcSaslProto
	if _, err := take(rest, &m); err != nil {
		return unauthorized("a message of SASL cannot be decoded: %s", err)
	}
	if c.steps++; c.steps > maxSteps || len(m.GetToken()) > maxToken {
		return unauthorized("SASL: a proof takes at most %d steps of %d bytes", maxSteps, maxToken)
	}
	first := m.GetState() == pb.RpcSaslProto_INITIATE
	switch a := m.GetAuths(); {
	case m.GetState() == pb.RpcSaslProto_NEGOTIATE && c.begun == nil && c.proof == nil:
		return c.tell(h, c.offer())
	case first && len(a) == 1 && a[0].GetMethod() == "SIMPLE" && len(c.server.cfg.Mechanisms) == 0:
		return nil
	case first && len(a) == 1 && c.proof == nil && c.begun[a[0].GetMethod()] != nil:
		c.proof, c.method, c.begun = c.begun[a[0].GetMethod()], a[0].GetMethod(), nil
	case m.GetState() == pb.RpcSaslProto_RESPONSE && c.proof != nil:
	case len(c.server.cfg.Mechanisms) == 0:
		return unauthorized("SASL: this server offers SIMPLE and nothing else")
	default:
		return unauthorized("SASL: a message of state %s makes no sense here; this server offers %s", m.GetState(), c.server.methods())
	}
	answer, done, err := c.proof.Next(m.GetToken())
	if err != nil {
		return &badFrame{pb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED, hadoop.Message(err)}
	}
	state := pb.RpcSaslProto_CHALLENGE
	if c.proven = done; done {
		state = pb.RpcSaslProto_SUCCESS
	}
	if err := c.tell(h, &pb.RpcSaslProto{State: &state, Token: answer}); err != nil || !done || !c.proof.Protects() {
		return err
	}
	if c.in.Buffered() > 0 {
		return unauthorized("SASL: the client did not wait for the answer to its proof")
	}
	c.in = bufio.NewReaderSize(&unwrapper{c: c, in: c.in}, smallFrame)
	c.out.Lock()
	defer c.out.Unlock()
	c.wraps = true
	return nil
}

// tell sends a message of SASL.
func (c *conn) tell(h *pb.RpcRequestHeaderProto, m *pb.RpcSaslProto) error {
	return c.write(c.frame(saslHeader(h.GetClientId()), m))
}

func saslHeader(client []byte) *pb.RpcResponseHeaderProto {
	return &pb.RpcResponseHeaderProto{
		CallId: callID(saslCall), Status: pb.RpcResponseHeaderProto_SUCCESS.Enum(), ServerIpcVersionNum: proto.Uint32(version), ClientId: client,
	}
}

// wrap is a frame as a protected one.
func (c *conn) wrap(frame []byte) ([]byte, error) {
	token, err := c.proof.Wrap(frame)
	if err != nil {
		return nil, err
	}
	return c.frame(saslHeader(nil), &pb.RpcSaslProto{State: pb.RpcSaslProto_WRAP.Enum(), Token: token}), nil
}

// unwrapper reads what is in protected frames.
type unwrapper struct {
	c    *conn
	in   *bufio.Reader
	rest []byte
}

// Read implements io.Reader.
func (u *unwrapper) Read(p []byte) (int, error) {
	for len(u.rest) == 0 {
		frame, err := readFrame(u.in, maxWrapped, func(int) error { return nil })
		if err != nil {
			return 0, err
		}
		var h pb.RpcRequestHeaderProto
		var m pb.RpcSaslProto
		rest, err := take(frame, &h)
		if err == nil {
			_, err = take(rest, &m)
		}
		if err != nil || h.GetCallId() != saslCall || m.GetState() != pb.RpcSaslProto_WRAP {
			return 0, unauthorized("a message is not protected as the client and the server have agreed")
		}
		if u.rest, err = u.c.proof.Unwrap(m.GetToken()); err != nil {
			return 0, unauthorized("%s", hadoop.Message(err))
		}
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

var _ io.Reader = (*unwrapper)(nil)
