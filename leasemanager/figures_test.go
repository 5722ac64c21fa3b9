package leasemanager

// figures are the Stats, and what only tests want to know.
type figures struct {
	Stats
	Ending, Lapsing, Sessions, Files, Granted, WouldExpire int
	Suspended                                              bool
	KeepAlives                                             uint64
}

func figuresOf(m *Manager) figures {
	f := figures{Stats: m.Stats()}
	now := m.now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	f.Ending, f.Sessions, f.Files, f.Granted = m.ending.Len(), m.sessions, len(m.inodes), m.deadlines.Len()+m.over.Len()
	f.Suspended, f.KeepAlives = m.safeMode, m.grants.renewals()
	m.ids.Ascend(func(it item) bool {
		if it.l.kind == KindLapsing {
			f.Lapsing++
		}
		return true
	})
	m.order.Ascend(func(it item) bool {
		if now-m.stamp(it.l) > m.cfg.Hard {
			f.WouldExpire++
		}
		return true
	})
	return f
}
