package namenode_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/internal/backup"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// overLostRequests does something over and over, while in each round the
// connection to ZooKeeper breaks at the next request of it: before that is
// carried out, after it was, and with the end of all sessions. It ends with the
// round that needs no more requests.
func overLostRequests(t *testing.T, way *zkproxy.Proxy, least int64, do func(round string)) {
	t.Helper()
	for name, act := range map[string]func() zkproxy.Action{
		"lost-request": func() zkproxy.Action { return zkproxy.CutBefore },
		"lost-answer":  func() zkproxy.Action { return zkproxy.CutAfter },
		"lost-session": func() zkproxy.Action {
			if err := way.ExpireAll(); err != nil {
				t.Error(err)
			}
			return zkproxy.CutBefore
		},
	} {
		for at := int64(1); ; at++ {
			var n atomic.Int64
			way.Decide(func(int32, []byte) zkproxy.Action {
				if n.Add(1) == at {
					return act()
				}
				return zkproxy.Forward
			})
			do(fmt.Sprintf("%s-%d", name, at))
			way.Decide(nil)
			if t.Failed() {
				t.Fatalf("%s %d", name, at)
			}
			if n.Load() < at {
				if at <= least {
					t.Fatalf("only %d requests", at)
				}
				t.Logf("%s: %d requests", name, at-1)
				break
			}
		}
	}
}

// A namenode starts and joins, whichever of its requests to ZooKeeper is lost.
func TestStartOverLostRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, way := p.config()
	data := t.TempDir()
	p.format(cfg)
	overLostRequests(t, way, 10, func(round string) {
		cfg.Data = filepath.Join(data, round)
		s, err := namenode.Start(t.Context(), cfg)
		if err != nil {
			t.Error(err)
			return
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// So a format, but that the end of its session is told, and it can be repeated.
func TestFormatOverLostRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, way := p.config()
	overLostRequests(t, way, 4, func(round string) {
		cfg.HA.Name = round
		err := env.TryFormat(t.Context(), cfg)
		if err != nil && strings.HasPrefix(round, "lost-session") {
			if err = env.TryFormat(t.Context(), cfg); errors.Is(err, fserror.Exists) {
				return // the lost one was the last of it
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// So a restore, but that the end of its session is told, and it can be repeated.
func TestRestoreOverLostRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	a := p.start(acfg)
	p.becomes(a, "active")
	saved := filepath.Join(t.TempDir(), "backup")
	f := p.client(acfg.Listen)
	if err := f.WriteFile(t.Context(), "/f", make([]byte, 70<<10)); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Write(t.Context(), f.Admin(), saved, backup.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	cfg, way := p.config()
	overLostRequests(t, way, 5, func(round string) {
		cfg.HA.Name, cfg.Blocks = round, "file://"+filepath.Join(p.blocks, round)
		done, err := env.Restore(t.Context(), cfg, saved)
		if err != nil && strings.HasPrefix(round, "lost-session") {
			for again := 0; again < 5 && err != nil && !errors.Is(err, fserror.Exists); again++ { // a busy machine loses sessions, too
				done, err = env.Restore(t.Context(), cfg, saved)
			}
			if errors.Is(err, fserror.Exists) { // the lost one was the last of it
				return
			}
		}
		if err != nil || done.Files != 1 {
			t.Errorf("%+v, %v", done, err)
		}
	})
}
