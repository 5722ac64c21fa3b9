package kerberos

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/jcmturner/gofork/encoding/asn1"
	"github.com/jcmturner/gokrb5/v8/asn1tools"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana"
	"github.com/jcmturner/gokrb5/v8/iana/asnAppTag"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/msgtype"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"
)

// Context is what a client and this server share after a proof (of GSS-API, RFC 4121). Wrap
// and Unwrap are each for one goroutine at a time.
type Context struct {
	Principal Principal
	Until     time.Time // when the ticket expires
	// Reply proves to the client that this server has the key of its name; empty, if the
	// client did not ask for that.
	Reply []byte

	// Numbered tells whether the client numbers its messages, so that one that comes twice, or
	// out of order, is refused.
	Numbered bool

	key       types.EncryptionKey
	sent, got uint64 // the numbers of the next messages
}

// AcceptContext is Accept for a client that wants a proof of the server, too, or protects
// what follows. The token is one of SPNEGO or of Kerberos alone; so is the Reply.
func (a *Acceptor) AcceptContext(token []byte) (*Context, error) {
	var req messages.APReq
	negotiated := false
	err := guarded(func() (err error) {
		negotiated, err = unwrapEither(token, &req)
		return err
	})
	if err != nil {
		return nil, refuse("what was shown is no Kerberos ticket: %v", err)
	}
	c := new(Context)
	if c.Principal, c.Until, err = a.accept(&req); err != nil {
		return nil, err
	}
	return c, guarded(func() error { return c.agree(&req, negotiated) })
}

func unwrapEither(token []byte, req *messages.APReq) (negotiated bool, err error) {
	var k spnego.KRB5Token
	if err := k.Unmarshal(token); err != nil {
		return true, unwrap(token, req)
	}
	if !k.IsAPReq() || len(k.APReq.Ticket.SName.NameString) == 0 {
		return false, errors.New("it has no AP-REQ")
	}
	*req = k.APReq
	return false, nil
}

// mutual is the bit of an AP-REQ by which a client asks for a proof of the server.
const mutual = 2

// What the checksum of an AP-REQ has (RFC 4121, 4.1.1): flags, of which two say that
// messages are numbered.
const (
	flagsAt  = 20
	numbered = 4 | 8 // against replays, and in order
)

// agree takes the key that the client proposes, and makes the Reply.
func (c *Context) agree(req *messages.APReq, negotiated bool) error {
	auth, session := &req.Authenticator, req.Ticket.DecryptedEncPart.Key
	if c.key = session; len(auth.SubKey.KeyValue) > 0 {
		if !slices.Contains(strong, auth.SubKey.KeyType) {
			return refuse("the client proposes a key of kind %d, and only AES keys are taken", auth.SubKey.KeyType)
		}
		c.key = auth.SubKey
	}
	c.got = uint64(auth.SeqNumber) & (1<<32 - 1) //nolint:gosec // 32 bits of it
	if sum := auth.Cksum; sum.CksumType == chksumtype.GSSAPI && len(sum.Checksum) >= flagsAt+4 {
		c.Numbered = binary.LittleEndian.Uint32(sum.Checksum[flagsAt:])&numbered == numbered
	}
	if req.APOptions.At(mutual) == 0 {
		return c.negotiated(negotiated)
	}
	var number [4]byte
	_, _ = rand.Read(number[:])                                                                                                 // it never fails
	c.sent = uint64(binary.BigEndian.Uint32(number[:])) >> 2                                                                    // as others do: some clients take it for signed
	part, err := asn1.Marshal(messages.EncAPRepPart{CTime: auth.CTime.UTC(), Cusec: auth.Cusec, SequenceNumber: int64(c.sent)}) //nolint:gosec // 30 bits
	if err != nil {
		return err
	}
	sealed, err := crypto.GetEncryptedData(asn1tools.AddASNAppTag(part, asnAppTag.EncAPRepPart), session, keyusage.AP_REP_ENCPART, 0)
	if err != nil {
		return err
	}
	body, err := asn1.Marshal(messages.APRep{PVNO: iana.PVNO, MsgType: msgtype.KRB_AP_REP, EncPart: sealed})
	if err != nil {
		return err
	}
	oid, err := asn1.Marshal(gssapi.OIDKRB5.OID())
	if err != nil {
		return err
	}
	c.Reply = asn1tools.AddASNAppTag(slices.Concat(oid, []byte{2, 0}, asn1tools.AddASNAppTag(body, asnAppTag.APREP)), 0)
	return c.negotiated(negotiated)
}

// negotiated puts the Reply into SPNEGO if the token came in it.
func (c *Context) negotiated(yes bool) (err error) {
	if yes {
		r := spnego.NegTokenResp{NegState: asn1.Enumerated(spnego.NegStateAcceptCompleted), SupportedMech: gssapi.OIDKRB5.OID(), ResponseToken: c.Reply}
		c.Reply, err = r.Marshal()
	}
	return err
}

// Bits of a message's head.
const (
	byAcceptor = 1
	isSealed   = 2

	headSize = 16
)

var errMessage = refuse("a message is not one of the client that has proven who it is, or is out of order")

// head is that of a message, not rotated.
func head(flags byte, extra uint16, number uint64) []byte {
	h := []byte{5, 4, flags, 0xff}
	h = binary.BigEndian.AppendUint16(h, extra)
	h = binary.BigEndian.AppendUint16(h, 0)
	return binary.BigEndian.AppendUint64(h, number)
}

// Wrap protects a message to the client from changes, and if it is to be sealed, from those
// who listen.
func (c *Context) Wrap(message []byte, seal bool) ([]byte, error) {
	number := c.sent
	c.sent++
	if seal {
		h := head(byAcceptor|isSealed, 0, number)
		e, err := crypto.GetEncryptedData(slices.Concat(message, h), c.key, keyusage.GSSAPI_ACCEPTOR_SEAL, 0)
		return append(h, e.Cipher...), err
	}
	kind, err := crypto.GetEtype(c.key.KeyType)
	if err != nil {
		return nil, err
	}
	sum, err := kind.GetChecksumHash(c.key.KeyValue, slices.Concat(message, head(byAcceptor, 0, number)), keyusage.GSSAPI_ACCEPTOR_SEAL)
	return slices.Concat(head(byAcceptor, uint16(len(sum)), number), message, sum), err //nolint:gosec // some bytes
}

// Unwrap is the reverse for a message of the client. sealed: nobody else could read it.
func (c *Context) Unwrap(token []byte) (message []byte, sealed bool, err error) {
	err = guarded(func() error {
		message, sealed, err = c.unwrap(token)
		return err
	})
	return message, sealed, err
}

func (c *Context) unwrap(token []byte) ([]byte, bool, error) {
	if len(token) < headSize || token[0] != 5 || token[1] != 4 || token[2]&byAcceptor != 0 || token[3] != 0xff {
		return nil, false, errMessage
	}
	flags, extra, number := token[2], binary.BigEndian.Uint16(token[4:]), binary.BigEndian.Uint64(token[8:])
	if c.Numbered && number != c.got {
		return nil, false, errMessage
	}
	c.got++
	body := slices.Clone(token[headSize:])
	if turn := int(binary.BigEndian.Uint16(token[6:])); turn > 0 && len(body) > 0 {
		turn %= len(body)
		body = slices.Concat(body[turn:], body[:turn])
	}
	if flags&isSealed != 0 {
		plain, err := crypto.DecryptMessage(body, c.key, keyusage.GSSAPI_INITIATOR_SEAL)
		end := len(plain) - headSize - int(extra)
		if err != nil || end < 0 || !bytes.Equal(plain[len(plain)-headSize:], head(flags, extra, number)) {
			return nil, false, errMessage
		}
		return plain[:end], true, nil
	}
	kind, err := crypto.GetEtype(c.key.KeyType)
	if err != nil {
		return nil, false, err
	}
	end := len(body) - int(extra)
	if end < 0 || int(extra) != kind.GetHMACBitLength()/8 {
		return nil, false, errMessage
	}
	sum, err := kind.GetChecksumHash(c.key.KeyValue, slices.Concat(body[:end], head(flags, 0, number)), keyusage.GSSAPI_INITIATOR_SEAL)
	if err != nil || !hmac.Equal(sum, body[end:]) {
		return nil, false, errMessage
	}
	return body[:end], false, nil
}
