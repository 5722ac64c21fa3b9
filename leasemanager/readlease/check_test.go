package readlease

import (
	"fmt"
	"maps"
	"time"
)

// all are a shard's entries.
func (s *shard) all() map[Key]*entry {
	all := map[Key]*entry{}
	for _, set := range s.entries {
		maps.Copy(all, set)
	}
	return all
}

// check looks for what must not be. Nothing else may run.
func (t *Table) check() (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	t.sweep()
	total := 0
	for i := range t.keys.shards {
		for k, e := range t.keys.shards[i].all() {
			if e.key != k || int(e.shard) != i || len(e.holders) == 0 && e.marks == 0 || e.marks < 0 {
				say("entry %v: %+v", k, e)
			}
			total += len(e.holders)
			for j, h := range e.holders {
				l := t.slots[h.slot]
				if j > 0 && e.holders[j-1].slot >= h.slot || l == nil || l.dead.Load() || l.s.hold != l || l.list[h.at&^withdrawn] != e {
					say("entry %v: holder %d of %v", k, j, e.holders)
				}
			}
		}
	}
	if int64(total) != t.keys.total.Load() {
		say("%d holdings, counted %d", total, t.keys.total.Load())
	}
	listed, streams := 0, 0
	for id, s := range t.dir {
		listed += len(s.hold.list)
		if s.id != id || s.gone || s.size.Load() != int64(len(s.hold.list)) || len(s.hold.list) > t.cfg.MaxKeys {
			say("session %v: %d held, size %d", id, len(s.hold.list), s.size.Load())
		}
		if s.stream != nil {
			streams++
		}
		asked := 0
		for _, p := range s.pending {
			asked += len(p.entries)
			for _, e := range p.entries {
				if i, held := e.find(s.hold.slot); !held || e.holders[i].at&withdrawn == 0 {
					say("session %v: %v is not withdrawn", id, e.key)
				}
			}
		}
		for _, e := range s.hold.list {
			if i, held := e.find(s.hold.slot); held && e.holders[i].at&withdrawn != 0 {
				asked--
			}
		}
		if asked != 0 {
			say("session %v: %d more asked for than withdrawn", id, asked)
		}
		if s.all != (len(s.pending) > 0 && s.pending[len(s.pending)-1].all) {
			say("session %v: all is %v", id, s.all)
		}
	}
	if listed != total || len(t.dir) != int(t.active.Load()) || streams != int(t.connected.Load()) {
		say("%d listed, %d held; %d sessions, %d streams", listed, total, len(t.dir), streams)
	}
	if free := len(t.slots) - len(t.free); free != len(t.dir) {
		say("%d slots of %d sessions", free, len(t.dir))
	}
	return wrong
}

// renewOn renews on the session's stream.
func renewOn(t *Table, id SessionID) time.Duration {
	s := t.lookup(id)
	if s == nil {
		return 0
	}
	st := s.stream
	s.mu.Unlock()
	return st.Renew()
}
