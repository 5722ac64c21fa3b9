package data

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/leasefs/leasefs/gateway/gate"
	"github.com/leasefs/leasefs/gateway/hdfs/files"
	"github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/namenode/share"
)

// Decode reads packets as a connection does, until the end or an error.
func Decode(b []byte) {
	p := &packets{in: bufio.NewReader(bytes.NewReader(b)), sums: sums{castagnoli, chunkSize}}
	for {
		h, err := p.next()
		if err != nil {
			return
		}
		n := int(h.GetDataLen())
		got := 0
		err = p.body(n, func(at int, b []byte) error {
			if at != got || at+len(b) > n {
				panic("bytes at another place")
			}
			got += len(b)
			return nil
		})
		if err != nil {
			return
		}
		if got != n {
			panic("a packet is not whole")
		}
	}
}

// silent is a connection from which bytes come, and that takes all that is sent.
type silent struct {
	net.Conn // the rest is not used
	in       *bytes.Reader
}

func (s *silent) Read(p []byte) (int, error)     { return s.in.Read(p) }
func (*silent) Write(p []byte) (int, error)      { return len(p), nil }
func (*silent) SetDeadline(time.Time) error      { return nil }
func (*silent) SetReadDeadline(time.Time) error  { return nil }
func (*silent) SetWriteDeadline(time.Time) error { return nil }

// Requests reads requests as a connection does, until the end or an error. No token of theirs is good.
func Requests(b []byte) {
	raw := &silent{in: bytes.NewReader(b)}
	s := &Server{cfg: Config{Files: files.New(files.Config{}), Idle: time.Hour}, life: context.Background()}
	c := &conn{Server: s, Conn: raw, in: bufio.NewReader(raw)}
	for {
		if err := c.one(); err != nil {
			return
		}
	}
}

// IsFull tells whether a packet of n bytes is a full one, with a checksum for so many bytes each.
func IsFull(per int, checksums bool, n, longest int) bool {
	s := sums{per: per}
	if checksums {
		s.table = castagnoli
	}
	return s.isFull(n, longest)
}

// told is a silent connection that keeps what is sent.
type told struct {
	silent
	out bytes.Buffer
}

func (c *told) Write(p []byte) (int, error) { return c.out.Write(p) }

// Acknowledged is what a client is told of a full packet up to end when its connection ends behind it.
func Acknowledged(pipe *files.Pipe, end int64) (*hadoop.PipelineAckProto, error) {
	raw := new(told)
	acks := make(chan ack, 1)
	acks <- ack{end: end, pause: streamPause}
	close(acks)
	err := (&conn{Conn: raw}).acknowledge(pipe, acks)
	m := new(hadoop.PipelineAckProto)
	if derr := protodelim.UnmarshalFrom(&raw.out, m); derr != nil {
		return nil, derr
	}
	return m, err
}

// ExpectEnd says for how long the end of the block is expected behind a short packet that begins
// a file. It has to be called before clients connect.
func (s *Server) ExpectEnd(d time.Duration) { s.whole = d }

// FillSums takes all places for checksums for good. Who wants one waits for long.
func (s *Server) FillSums() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sums = gate.New(sumsOf, time.Hour)
	for n := range sumsOf { // each of a user of his own: none is refused
		if _, err := s.sums.Enter(s.life, share.Taker{Names: []string{strconv.Itoa(n)}, Reserve: true}); err != nil {
			panic(err)
		}
	}
}
