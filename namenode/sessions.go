package namenode

import (
	"context"
	"sync"

	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/leasemanager/readlease"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxLosses is how many losses wait for one session's stream. More are left to
// the session's next renewal, which tells all.
const maxLosses = 64

// sessionTable knows each session's current stream: when a client reconnects,
// the end of its old stream must not disconnect it.
type sessionTable struct {
	mu    sync.Mutex
	lines map[leasemanager.SessionID]*sessionLine
}

// sessionLine is the namenode's end of one stream.
type sessionLine struct {
	number uint64 // the client's, of the stream
	losses chan loss

	revokedMu sync.Mutex
	revoked   []readlease.Revocation // to be sent
	revoking  chan struct{}          // has an element when there are some

	sendMu sync.Mutex // gRPC wants one sender at a time
	out    func(*pb.SessionResponse) error
}

// loss is a file that a session does not have any more, by another's doing.
type loss struct {
	txid uint64 // to be told when this is durable
	file *pb.LostFile
}

func (l *sessionLine) send(m *pb.SessionResponse) error {
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	return l.out(m)
}

// maxRevoked is how many revocations wait for one session's stream. If there
// are more, everything is revoked.
const maxRevoked = 1024

// revoke hands a revocation to the stream. It does not wait.
func (l *sessionLine) revoke(r readlease.Revocation) {
	l.revokedMu.Lock()
	if len(l.revoked) == maxRevoked {
		clear(l.revoked)
		l.revoked, r = l.revoked[:0], readlease.Revocation{Seq: r.Seq, All: true}
	}
	l.revoked = append(l.revoked, r)
	l.revokedMu.Unlock()
	select {
	case l.revoking <- struct{}{}:
	default:
	}
}

// sendRevoked sends the revocations that wait.
func (l *sessionLine) sendRevoked() error {
	for {
		l.revokedMu.Lock()
		waiting := l.revoked
		l.revoked = nil
		l.revokedMu.Unlock()
		if len(waiting) == 0 {
			return nil
		}
		for _, r := range waiting {
			if err := l.send(revocationOf(r)); err != nil {
				return err
			}
		}
	}
}

// begin makes a stream its session's current one; nil if the client has opened
// that one later. connect runs under the table's lock, as disconnect does in
// end, so that the lease table hears of streams in the order in which they
// became current.
func (t *sessionTable) begin(id leasemanager.SessionID, number uint64, send func(*pb.SessionResponse) error, connect func()) *sessionLine {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines == nil {
		t.lines = map[leasemanager.SessionID]*sessionLine{}
	}
	if old := t.lines[id]; old != nil && number < old.number {
		return nil
	}
	l := &sessionLine{number: number, losses: make(chan loss, maxLosses), revoking: make(chan struct{}, 1), out: send}
	t.lines[id] = l
	connect()
	return l
}

// end runs disconnect if the stream was the session's current one.
func (t *sessionTable) end(id leasemanager.SessionID, l *sessionLine, disconnect func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines[id] == l {
		delete(t.lines, id)
		disconnect()
	}
}

// tell hands a loss to the session's stream, if it has one with room.
func (t *sessionTable) tell(id leasemanager.SessionID, l loss) {
	t.mu.Lock()
	line := t.lines[id]
	t.mu.Unlock()
	if line == nil {
		return
	}
	select {
	case line.losses <- l:
	default:
	}
}

// pushLoss tells a writer at once that its file is another's or closed, so that
// an idle one need not wait for its next renewal. It renews nothing.
func (s *Server) pushLoss(ctx context.Context, line *sessionLine, l loss) error {
	if err := s.engine.WaitDurable(ctx, l.txid); err != nil {
		return err
	}
	return line.send(&pb.SessionResponse{Kind: &pb.SessionResponse_Renewed{Renewed: &pb.RenewLeaseResponse{Lost: []*pb.LostFile{l.file}}}})
}

// lossOf is what the session that had the file is told.
func lossOf(txid uint64, f namespace.ClosedFile, by *leasemanager.Holder) loss {
	l := loss{txid: txid, file: &pb.LostFile{Inode: uint64(f.Inode), Epoch: f.Epoch, Reason: f.Reason}}
	if by != nil {
		l.file.NewHolder = holderInfo(*by, 0, 0)
	}
	return l
}
