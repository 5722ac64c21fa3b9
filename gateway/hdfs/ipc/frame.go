package ipc

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

const (
	magic      = "hrpc"
	version    = 9
	authNone   = 0
	authSASL   = 0xDF
	kindProto  = 2 // RequestHeader and body are protocol buffers
	opCall     = 0
	opClose    = 2
	saslCall   = -33
	contextID  = -3
	pingCall   = -4
	smallFrame = 16 << 10 // bytes that need no room, see room

	maxClientID = 64 // bytes
)

// badFrame is what cannot be understood. Nothing after it can be, either.
type badFrame struct {
	code hadoop.RpcResponseHeaderProto_ErrorCode
	text string
}

func (e *badFrame) Error() string { return e.text }

func bad(code hadoop.RpcResponseHeaderProto_ErrorCode, format string, args ...any) error {
	return &badFrame{code, fmt.Sprintf(format, args...)}
}

// readFrame reads the length of a frame and as many bytes. grow is asked before each piece
// of memory for what does not fit into a small frame.
func readFrame(r io.Reader, most int, grow func(n int) error) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:]))) //nolint:gosec // Java's int
	if size < 0 || size > int64(most) {
		return nil, bad(hadoop.RpcResponseHeaderProto_FATAL_INVALID_RPC_HEADER, "a message of %d bytes is announced; at most %d are taken", size, most)
	}
	frame := make([]byte, 0, min(size, smallFrame))
	for left := int(size); left > 0; {
		n := min(left, max(len(frame), smallFrame)) // as much again as has come
		if cap(frame)-len(frame) < n {
			if err := grow(n); err != nil {
				return nil, err
			}
			frame = append(make([]byte, 0, len(frame)+n), frame...)
		}
		at := len(frame)
		frame = frame[:at+n]
		if _, err := io.ReadFull(r, frame[at:]); err != nil {
			return nil, err
		}
		left -= n
	}
	return frame, nil
}

// take decodes the message at the beginning of b, which its length precedes, and returns
// what follows it.
func take(b []byte, m proto.Message) (rest []byte, err error) {
	one, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	return b[n:], proto.Unmarshal(one, m)
}

// put appends a message to b, and its length before it.
func put(b []byte, m proto.Message) ([]byte, error) {
	b = protowire.AppendVarint(b, uint64(proto.Size(m))) //nolint:gosec // not negative
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
}
