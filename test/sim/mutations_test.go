//go:build mutants

package sim_test

// mutations are the faults that TestMutants builds in.
var mutations = []mutation{
	{
		name: "no wait for the predecessor's window", faults: "^depose", seed: 3,
		changes: []change{{
			"namenode/reign/several.go", "if !hand.Released && hand.PrevTerm != 0 {",
			`if !hand.Released && hand.PrevTerm != 0 && !mutant.On("no wait for the predecessor's window") {`,
		}},
	},
	{
		name: "the window never closes", faults: "^depose", seed: 3,
		changes: []change{{
			"internal/election/window.go", "if d == nil || w.ended.Load() {\n\t\treturn 0\n\t}\n",
			"if d == nil || w.ended.Load() {\n\t\treturn 0\n\t}\n\tif mutant.On(\"the window never closes\") {\n\t\treturn time.Hour\n\t}\n",
		}},
	},
	{
		name: "answers before it is durable", faults: "^(lose a|crash|depose)", seed: 5,
		changes: []change{{
			"namenode/engine/engine.go", "return txid == 0 || e.journal.Durable() >= txid }",
			`return txid == 0 || e.journal.Durable() >= txid || mutant.On("answers before it is durable") }`,
		}},
	},
	{
		name: "caches are not recalled", faults: "^depose", seed: 1,
		changes: []change{{
			"namenode/engine/recall.go", "keys := tx.revokedBy(op)\n\tif len(keys) == 0 {",
			"keys := tx.revokedBy(op)\n\tif len(keys) == 0 || mutant.On(\"caches are not recalled\") {",
		}},
	},
	{
		name: "recalls are not awaited", test: "TestTakeOversWaitForReaders",
		changes: []change{{
			"namenode/engine/recall.go", "if r.change = caches.RevokeGiven(keys, r.given); r.change == nil || !r.change.Pending() {",
			"if r.change = caches.RevokeGiven(keys, r.given); r.change == nil || !r.change.Pending() || mutant.On(\"recalls are not awaited\") {",
		}, {
			"namenode/engine/recall.go", "if r.change.More(keys) {",
			`if r.change.More(keys) && !mutant.On("recalls are not awaited") {`,
		}},
	},
	{
		name: "ages are not journalled", test: "TestShortReignsEndLeases",
		changes: []change{{
			"leasemanager/ages.go", "if !ok || k.due > begin {",
			`if !ok || k.due > begin || mutant.On("ages are not journalled") {`,
		}},
	},
	{
		name: "an activation adds to the time of reigns", test: "TestCallsAreRememberedOverAWrongTime",
		changes: []change{
			{
				"namenode/namespace/apply.go", "if Activation(e.Op) == nil {",
				`if Activation(e.Op) == nil || mutant.On("an activation adds to the time of reigns") {`,
			},
			{
				"namenode/engine/time.go", "j.latest = lastMS*int64(time.Millisecond) + int64(idle)",
				"j.latest = lastMS*int64(time.Millisecond) + int64(idle)\n\tif mutant.On(\"an activation adds to the time of reigns\") {\n\t\tj.latest = math.MaxInt64\n\t}",
			},
		},
	},
	{
		name: "repeated calls are carried out again", faults: "^lose a", seed: 4,
		changes: []change{
			{
				"namenode/namespace/tables/results.go", "if id.None() {\n\t\treturn\n\t}\n\ts := t.own(",
				"if id.None() || mutant.On(\"repeated calls are carried out again\") {\n\t\treturn\n\t}\n\ts := t.own(",
			},
		},
	},
	{
		name: "a renewal counts from its answer", test: "TestLocksEndBeforeOthersHaveThem",
		changes: []change{{
			"internal/session/renew.go", "\ts.answered(req, resp, covered, sent)\n\treturn resp, nil",
			"\tif mutant.On(\"a renewal counts from its answer\") {\n\t\tsent = s.Now()\n\t}\n\ts.answered(req, resp, covered, sent)\n\treturn resp, nil",
		}},
	},
	{
		name: "a lease is anybody's at once", test: "TestLocksEndBeforeOthersHaveThem",
		changes: []change{{
			"leasemanager/query.go", "case st.SoftExpired || st.Ending:",
			`case st.SoftExpired || st.Ending || mutant.On("a lease is anybody's at once"):`,
		}},
	},
	{
		name: "a lease is anybody's a second early", test: "TestLocksEndBeforeOthersHaveThem",
		changes: []change{{
			"leasemanager/query.go", "st.SoftExpired = softIdle > soft && !tm.safeMode",
			"if mutant.On(\"a lease is anybody's a second early\") {\n\t\tsoft -= time.Second\n\t}\n\tst.SoftExpired = softIdle > soft && !tm.safeMode",
		}},
	},
	{
		name: "a watch that comes back misses a change", faults: "^reset", seed: 3,
		changes: []change{{
			"client/watch.go", "req.FromTxid = w.upTo + 1",
			"req.FromTxid = w.upTo + 1\n\t\t\tif mutant.On(\"a watch that comes back misses a change\") {\n\t\t\t\treq.FromTxid++\n\t\t\t}",
		}},
	},
	{
		name: "a watch that comes back repeats a change", faults: "^reset", seed: 3,
		changes: []change{{
			"client/watch.go", "if w.started {\n",
			"if w.started && mutant.On(\"a watch that comes back repeats a change\") {\n\t\t\treq.FromTxid = w.upTo\n\t\t} else if w.started {\n",
		}},
	},
	{
		name: "a tail is sealed though a writer has added to it", test: "TestTailsAreSealedAsTheyAre",
		changes: []change{{
			"namenode/blocks/seal.go", "; open || !tx.Tree.TailIs(m.id, m.offset, m.tail) {",
			"; (open || !tx.Tree.TailIs(m.id, m.offset, m.tail)) && !mutant.On(\"a tail is sealed though a writer has added to it\") {",
		}},
	},
	{
		name: "garbage goes before it is durable that it is", test: "TestBlocksGoWhenThatIsDurable",
		changes: []change{{
			"namenode/blocks/collect.go", "if err := bs.Engine.WaitDurable(ctx, last); err != nil {\n\t\treturn 0, waiting, err\n\t}",
			"if mutant.On(\"garbage goes before it is durable that it is\") {\n\t} else if err := bs.Engine.WaitDurable(ctx, last); err != nil {\n\t\treturn 0, waiting, err\n\t}",
		}},
	},
	{
		name: "who takes over does not read to the end", test: "TestTakeOversReadToTheEnd",
		changes: []change{{
			"namenode/reign/several.go", "progress(true)\n\t\treturn s.applyTailed(r)",
			"progress(true)\n\t\tif mutant.On(\"who takes over does not read to the end\") {\n\t\t\treturn nil\n\t\t}\n\t\treturn s.applyTailed(r)",
		}},
	},
	{
		name: "a block's key is given twice", faults: "^(crash|have PUTs)",
		changes: []change{{
			"namenode/owner/incarnation.go", "return max(top, o.Floor()) + 1, nil",
			"if mutant.On(\"a block's key is given twice\") {\n\t\treturn last + 1, nil\n\t}\n\treturn max(top, o.Floor()) + 1, nil",
		}, {
			"namenode/namespace/tables/reigns.go", "{ return 1<<52 + ",
			"{\n\tif mutant.On(\"a block's key is given twice\") {\n\t\treturn 0\n\t}\n\treturn 1<<52 + ",
		}},
	},
	{
		name: "a client keeps what it has read after its term", test: "TestTakeOversWaitForReaders",
		changes: []change{
			{
				"internal/readcache/cache.go", "return c.term > 0 && c.Now().Since(c.sent) < c.term",
				`return c.term > 0 && (c.Now().Since(c.sent) < c.term || mutant.On("a client keeps what it has read after its term"))`,
			},
			{
				"internal/readcache/cache.go", "\tdefer c.mu.Unlock()\n\tc.dropAll()\n\tc.connected = false",
				"\tdefer c.mu.Unlock()\n\tif mutant.On(\"a client keeps what it has read after its term\") {\n\t\treturn\n\t}\n\tc.dropAll()\n\tc.connected = false",
			},
		},
	},
	{
		name: "a client acknowledges without dropping", faults: "^depose", seed: 5,
		changes: []change{{
			"internal/readcache/cache.go", "\tfor _, k := range keys {\n\t\tc.revoked.add(k)",
			"\tfor _, k := range keys {\n\t\tif mutant.On(\"a client acknowledges without dropping\") {\n\t\t\tbreak\n\t\t}\n\t\tc.revoked.add(k)",
		}},
	},
	{
		name: "an answer that was overtaken is kept", test: "TestAnswersThatWereOvertaken",
		changes: []change{{
			"internal/readcache/cache.go", "|| c.revoked.since(ticket.count, deps) ||",
			`|| c.revoked.since(ticket.count, deps) && !mutant.On("an answer that was overtaken is kept") ||`,
		}},
	},
	{
		name: "epochs are not fenced", test: "TestWhoStoodStillIsFenced",
		changes: []change{{
			"namenode/namespace/writer.go", "if g.Epoch == w.Epoch && subtle",
			`if mutant.On("epochs are not fenced") || g.Epoch == w.Epoch && subtle`,
		}},
	},
	{
		name: "the journal is purged a batch beyond the newest image", test: "TestPurgedJournalsStart",
		changes: []change{
			{
				"namenode/images/keeper.go", "return k.journal.Purge(ctx, from)",
				"if mutant.On(\"the journal is purged a batch beyond the newest image\") {\n\t\tfrom = keep[len(keep)-1].TxID + 1\n\t}\n\treturn k.journal.Purge(ctx, from)",
			},
			{
				"internal/journal/zk/purge.go", "if h, err = p.j.readHeader(ctx, s, h.segment); err != nil {",
				"if mutant.On(\"the journal is purged a batch beyond the newest image\") {\n\t\th.segment = h.number + 1\n\t}\n\tif h, err = p.j.readHeader(ctx, s, h.segment); err != nil {",
			},
		},
	},
	{
		name: "who takes over does not wait for its predecessor's readers", test: "TestTakeOversWaitForReaders",
		changes: []change{{
			"namenode/engine/engine.go", "\te.Caches().Recover(ids, ",
			"\tif mutant.On(\"who takes over does not wait for its predecessor's readers\") {\n\t\tids = nil\n\t}\n\te.Caches().Recover(ids, ",
		}},
	},
	// What follows are defects of old, put back.
	{
		name: "a standby watches each batch", seed: 1,
		changes: []change{{
			"internal/journal/zk/tail.go", "\t\tselect {\n\t\tcase <-written:",
			"\t\tif mutant.On(\"a standby watches each batch\") {\n\t\t\t_, _, _, _ = s.GetW(ctx, j.batchPath(c.number-1))\n\t\t}\n\t\tselect {\n\t\tcase <-written:",
		}},
	},
	{
		name: "a lease has ended while its end waits", seed: 1,
		changes: []change{{
			"namenode/leases/monitor.go", "\t\t\tt.NotExpired(id)\n",
			"\t\t\tif !mutant.On(\"a lease has ended while its end waits\") {\n\t\t\t\tt.NotExpired(id)\n\t\t\t}\n",
		}},
	},
	{
		name: "the hard limit closes files without a recall", test: "TestTheHardLimitIsNewsToReaders",
		changes: []change{{
			"namenode/engine/recall.go", "\tchanges := tx.Tree.Affects(op)\n",
			"\tif _, hard := op.(*namespace.OpRecover); hard && mutant.On(\"the hard limit closes files without a recall\") {\n\t\treturn nil\n\t}\n\tchanges := tx.Tree.Affects(op)\n",
		}},
	},
	{
		name: "a tail is sealed into a key that was given up", test: "TestTailsOutliveTheirKeys",
		changes: []change{{
			"namenode/blocks/seal.go", "if bs.MayCommit(namespace.Writer{Inode: m.id}, b) != nil {",
			"if bs.MayCommit(namespace.Writer{Inode: m.id}, b) != nil && !mutant.On(\"a tail is sealed into a key that was given up\") {",
		}},
	},
	{
		name: "who has no room says that it is fit", test: "TestWhoHasRoomTakesOver",
		changes: []change{{
			"namenode/reign/standing.go", "\treturn election.Report{TxID: s.journal.Durable(), Unfit: why}",
			"\tif mutant.On(\"who has no room says that it is fit\") {\n\t\twhy = \"\"\n\t}\n\treturn election.Report{TxID: s.journal.Durable(), Unfit: why}",
		}},
	},
	{
		name: "leases may be shorter than a failover", test: "TestShortestLeasesOutliveACrash",
		changes: []change{{
			"namenode/reign/failovertime.go", "{ return 3 * s.cfg.HA.SessionTimeout }",
			"{\n\tif mutant.On(\"leases may be shorter than a failover\") {\n\t\treturn time.Second\n\t}\n\treturn 3 * s.cfg.HA.SessionTimeout\n}",
		}},
	},
	{
		name: "an isolated namenode ends leases without a pause", seed: 1,
		changes: []change{{
			"namenode/leases/monitor.go", "\tif m.Engine.Active() != nil {\n",
			"\tif m.Engine.Active() != nil && !mutant.On(\"an isolated namenode ends leases without a pause\") {\n",
		}},
	},
	{
		name: "a standby relies on each event", test: "TestStandbyWithoutItsWatches",
		changes: []change{{
			"internal/journal/zk/tail.go", "case <-time.After(lookAgain):",
			"case <-func() <-chan time.Time {\n\t\t\tif mutant.On(\"a standby relies on each event\") {\n\t\t\t\treturn nil\n\t\t\t}\n\t\t\treturn time.After(lookAgain)\n\t\t}():",
		}},
	},
	{
		name: "a standby reads behind what the beat says", test: "TestFleetAsksLittle",
		changes: []change{{
			"internal/journal/zk/tail.go", "if txid == 0 || late {",
			`if txid == 0 || late || mutant.On("a standby reads behind what the beat says") {`,
		}},
	},
	{
		name: "who leaves while it is greeted stays", test: "TestWhoLeavesEarlyIsForgotten",
		changes: []change{{
			"namenode/caching.go", "\t\tstream.Disconnect()\n\t\treturn nil, err",
			"\t\tif !mutant.On(\"who leaves while it is greeted stays\") {\n\t\t\tstream.Disconnect()\n\t\t}\n\t\treturn nil, err",
		}},
	},
	{
		name: "a watch on who has just gone stays", test: "TestNoWatchOnWhoHasJustGone",
		changes: []change{{
			"internal/election/election.go", "\t_, ch, err := c.s.ChildrenW(ctx, c.cfg.Path+\"/\"+before.name)\n",
			"\tif mutant.On(\"a watch on who has just gone stays\") {\n\t\tthere, left, err := c.s.ExistsW(ctx, c.cfg.Path+\"/\"+before.name)\n\t\tif err != nil || !there {\n\t\t\treturn false, nil, err\n\t\t}\n\t\treturn false, left, nil\n\t}\n\t_, ch, err := c.s.ChildrenW(ctx, c.cfg.Path+\"/\"+before.name)\n",
		}},
	},
	{
		name: "a silent store has lost its blocks", test: "TestFsckOfASilentStore",
		changes: []change{{
			"namenode/rpc_admin.go", "\tswitch fserror.KindOf(err) {\n\tcase fserror.NotFound, fserror.Damaged:\n",
			"\tif mutant.On(\"a silent store has lost its blocks\") {\n\t\treturn f.problem(path, \"%s: %v\", block, err)\n\t}\n\tswitch fserror.KindOf(err) {\n\tcase fserror.NotFound, fserror.Damaged:\n",
		}},
	},
	{
		name: "the end of a transaction is left out", seed: 1,
		changes: []change{{
			"namenode/namespace/op_txn.go", "\t\tif n.list = nil; t.events {\n",
			"\t\tif i > 0 && i == len(op.Parts)-1 && mutant.On(\"the end of a transaction is left out\") {\n\t\t\tbreak\n\t\t}\n\t\tif n.list = nil; t.events {\n",
		}},
	},
	{
		name: "a lost lock has time left", test: "TestALockThatWasTakenHasNoTimeLeft",
		changes: []change{{
			"client/lock.go", "if l.w.lost.Load() != nil || l.w.closing.Load() {",
			`if (l.w.lost.Load() != nil || l.w.closing.Load()) && !mutant.On("a lost lock has time left") {`,
		}},
	},
	{
		name: "a granted lease ends early", test: "TestGrantedLeasesOverFailovers",
		changes: []change{{
			"leasemanager/expire.go", "\t\tkey := max(stampOf(w), tm.floor) + ttl\n",
			"\t\tkey := max(stampOf(w), tm.floor) + ttl\n\t\tif mutant.On(\"a granted lease ends early\") {\n\t\t\tkey -= ttl / 2\n\t\t}\n",
		}},
	},
}
