package zk

import (
	"context"
	"log/slog"
	"sync"

	"github.com/leasefs/leasefs/internal/turn"
	"github.com/leasefs/leasefs/internal/zkconn"
)

// link has a session for whoever needs one, one at a time.
type link struct {
	to  zkconn.Config
	log *slog.Logger

	dialing turn.Turn // its holder may open a session
	mu      sync.Mutex
	last    *zkconn.Session
}

// session returns a session that lives, a new one if the last is over.
func (l *link) session(ctx context.Context) (*zkconn.Session, error) {
	if s := l.current(); s != nil {
		return s, nil
	}
	unlock, err := l.dialing.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s := l.current(); s != nil {
		return s, nil
	}
	s, err := zkconn.Dial(ctx, l.to)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	old := l.last
	l.last = s
	l.mu.Unlock()
	if old != nil {
		old.Abandon()
		l.log.Info("journal: new ZooKeeper session")
	}
	return s, nil
}

// current is nil if the last session is over.
func (l *link) current() *zkconn.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && l.last.Err() == nil {
		return l.last
	}
	return nil
}

func (l *link) end() {
	unlock, _ := l.dialing.Lock(context.Background())
	defer unlock()
	l.mu.Lock()
	s := l.last
	l.last = nil
	l.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
}
