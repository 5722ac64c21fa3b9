package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// in runs a test in a bubble, with a session that is not open.
func in(t *testing.T, fn func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, newRig(t)) })
}

// An open session has the namenode's welcome and limits, and has told the cache.
func TestOpen(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.open()
		if r.SoftLimit() != time.Minute || r.HardLimit() != 20*time.Minute || r.Welcome().GetNamespaceId() != "ns" || r.Stats().Opened != 1 {
			t.Errorf("limits %s, %s, %v, %+v", r.SoftLimit(), r.HardLimit(), r.Welcome(), r.Stats())
		}
		synctest.Wait()
		st := r.Stream()
		if st == nil || st.Number() != 1 || st.Node().Address != "nn" {
			t.Fatalf("stream %+v", st)
		}
		h := r.nn.hellos[0]
		if h.GetStream() != 1 || !h.GetCache() || h.GetCaller().GetUser() != "ann" {
			t.Errorf("hello %v", h)
		}
		if got := fmt.Sprint(r.cache.told()); got != "[opening opened]" {
			t.Error(got)
		}
	})
}

// What refuses a Hello for good makes Open fail at once; what may pass makes it try until
// its time is over, and say why.
func TestOpenFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		hello func() *pb.SessionResponse
		want  fserror.Kind
		took  time.Duration // at least
		text  string
	}{
		{"permission", func() *pb.SessionResponse { return refusal(fserror.Permission, "not you") }, fserror.Permission, 0, "not you"},
		{"bad argument", func() *pb.SessionResponse { return refusal(fserror.InvalidArgument, "no") }, fserror.InvalidArgument, 0, "no"},
		{"another program", func() *pb.SessionResponse {
			return &pb.SessionResponse{Kind: &pb.SessionResponse_CacheTerm{CacheTerm: new(pb.CacheTerm)}}
		}, fserror.Unsupported, 0, "no namenode of this version"},
		{"not active", func() *pb.SessionResponse { return refusal(fserror.NotActive, "a standby") }, fserror.Unavailable, time.Minute, "a standby"},
		{"silent", func() *pb.SessionResponse { return nil }, fserror.Unavailable, time.Minute, "no answer within"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.nn.hello = c.hello
				began := time.Now()
				err := r.Open(t.Context())
				wantKind(t, c.name, err, c.want)
				if took := time.Since(began); took != c.took || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "connect") {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
	t.Run("the context ends", func(t *testing.T) {
		in(t, func(t *testing.T, r *rig) {
			r.nn.hello = func() *pb.SessionResponse { return nil }
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(3*time.Second, cancel)
			began := time.Now()
			wantKind(t, "canceled", r.Open(ctx), fserror.Canceled)
			ctx, cancel = context.WithTimeoutCause(t.Context(), time.Second, errors.New("out of patience"))
			defer cancel()
			if err := r.awaitWelcome(ctx); fserror.KindOf(err) != fserror.Unavailable || !strings.Contains(err.Error(), "out of patience") || time.Since(began) != 4*time.Second {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		})
	})
}

// A stream that breaks is replaced by one with the next number; the namenode gets the
// whole set of files on it at once. The cache is told before another is asked for.
func TestStreamBreaks(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.open()
		r.file(7)
		r.RenewNow() // so the namenode has the set
		synctest.Wait()
		old := r.Stream()
		r.nn.breakStream()
		<-old.Gone()
		pass(time.Second)
		synctest.Wait()
		if st := r.Stream(); st == nil || st.Number() != 2 || r.Stats().Opened != 2 {
			t.Fatalf("%+v, %+v", st, r.Stats())
		}
		if got := fmt.Sprint(r.cache.told()); got != "[opening opened broken opening opened]" {
			t.Error(got)
		}
		if _, renewals, _ := r.nn.seen(); renewals != 2 {
			t.Fatalf("%d renewals", renewals)
		}
		if m := r.nn.last(); !m.GetHasSet() || len(m.GetOpen()) != 1 || m.GetOpen()[0].GetInode() != 7 {
			t.Errorf("renewed with %v", m)
		}
		r.Stream().Break()
		pass(time.Second)
		if st := r.Stream(); st == nil || st.Number() != 3 {
			t.Errorf("after Break: %+v", st)
		}
		r.Drop(nil) // another namenode's
		synctest.Wait()
		if st := r.Stream(); st.Number() != 3 {
			t.Errorf("another namenode's inactivity broke the stream: %d", st.Number())
		}
		r.Drop(r.Stream().Node())
		pass(time.Second)
		if st := r.Stream(); st == nil || st.Number() != 4 {
			t.Errorf("after Drop: %+v", st)
		}
	})
}

// A session stays with its namespace.
func TestAnotherNamespace(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.open()
		r.nn.set(func(n *namenode) { n.welcome = &pb.Welcome{NamespaceId: "other"} })
		r.nn.breakStream()
		pass(5 * time.Second)
		synctest.Wait()
		if hellos, _, _ := r.nn.seen(); hellos < 2 || r.Stream() != nil || r.Welcome().GetNamespaceId() != "ns" {
			t.Errorf("%d hellos, %+v, %v", hellos, r.Stream(), r.Welcome())
		}
	})
}

// Lower limits count for open files from a renewal on, since they could not renew before;
// without open files at once.
func TestLimitsOfAnotherNamenode(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.open()
		r.nn.set(func(n *namenode) {
			n.welcome = &pb.Welcome{NamespaceId: "ns", SoftLimitMs: 10_000, HardLimitMs: 20_000}
			n.renewal = func(*pb.RenewLeaseRequest) *pb.RenewLeaseResponse { return nil } // none yet
		})
		r.file(7)
		r.nn.breakStream()
		pass(time.Second)
		synctest.Wait()
		if r.SoftLimit() != time.Minute || r.HardLimit() != 20*time.Minute {
			t.Errorf("before a renewal: %s, %s", r.SoftLimit(), r.HardLimit())
		}
	})
	in(t, func(t *testing.T, r *rig) {
		r.open()
		r.nn.set(func(n *namenode) {
			n.welcome = &pb.Welcome{NamespaceId: "ns", SoftLimitMs: 10_000, HardLimitMs: 20_000}
		})
		r.nn.breakStream()
		pass(time.Second)
		synctest.Wait()
		if r.SoftLimit() != 10*time.Second || r.HardLimit() != 20*time.Second {
			t.Errorf("without files: %s, %s", r.SoftLimit(), r.HardLimit())
		}
	})
}

// Who leaves ends the stream in order, opens no other, and renews nothing any more.
func TestLeave(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.open()
		r.file(7)
		synctest.Wait()
		r.Leave()
		synctest.Wait()
		if r.nn.ended != 1 {
			t.Errorf("%d streams ended in order", r.nn.ended)
		}
		_, before, _ := r.nn.seen()
		pass(time.Hour)
		if hellos, renewals, _ := r.nn.seen(); hellos != 1 || renewals != before {
			t.Errorf("%d hellos, %d renewals after it left", hellos, renewals-before)
		}
	})
}

// Renewals keep all files; they come as often as the namenode says, a little earlier, and
// name the set only when it has changed.
func TestRenewals(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.open()
		r.nn.set(func(n *namenode) {
			n.renewal = func(*pb.RenewLeaseRequest) *pb.RenewLeaseResponse {
				return &pb.RenewLeaseResponse{NextRenewalMs: 20_000, SoftLimitMs: 40_000, HardLimitMs: 400_000}
			}
		})
		f := r.file(7)
		pass(10 * time.Minute)
		synctest.Wait()
		_, renewals, calls := r.nn.seen()
		if renewals < 28 || renewals > 36 || calls != 0 { // every 17 to 20 s
			t.Errorf("%d renewals, %d by calls", renewals, calls)
		}
		if f.lost() != nil || f.stamp.Age(r.Now()) > 20*time.Second || r.SoftLimit() != 40*time.Second || r.HardLimit() != 400*time.Second {
			t.Errorf("%v, %s old, limits %s, %s", f.lost(), f.stamp.Age(r.Now()), r.SoftLimit(), r.HardLimit())
		}
		sets := 0
		for _, m := range r.nn.renewed {
			if m.GetHasSet() {
				sets++
			}
		}
		if sets != 1 || !r.nn.renewed[0].GetHasSet() {
			t.Errorf("%d renewals of %d had the set", sets, renewals)
		}
		r.Remove(f)
		r.RenewNow()
		synctest.Wait()
		if m := r.nn.last(); !m.GetHasSet() || len(m.GetOpen()) != 0 {
			t.Errorf("after a change: %v", m)
		}
		if s := r.Stats(); s.Renewals != uint64(renewals)+1 || s.Failures != 0 { //nolint:gosec // a count
			t.Errorf("%+v", s)
		}
	})
}

// While no stream is up, renewals are calls.
func TestRenewalsWithoutAStream(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.open()
		f := r.file(7)
		r.nn.set(func(n *namenode) {
			n.hello = func() *pb.SessionResponse { return refusal(fserror.Retry, "later") }
		})
		r.nn.breakStream()
		pass(5 * time.Minute)
		synctest.Wait()
		if _, _, calls := r.nn.seen(); calls < 9 || r.Stream() != nil || f.lost() != nil || f.stamp.Age(r.Now()) > 31*time.Second {
			t.Errorf("%d calls, %v, %s old", calls, f.lost(), f.stamp.Age(r.Now()))
		}
	})
}

// A stream on which renewals are not answered is given up for another.
func TestRenewalsThatAreNotAnswered(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.open()
		r.file(7)
		r.nn.set(func(n *namenode) {
			n.renewal = func(*pb.RenewLeaseRequest) *pb.RenewLeaseResponse { return nil }
		})
		r.RenewNow()
		pass(11 * time.Second) // an attempt takes ten
		synctest.Wait()
		if st := r.Stream(); r.Stats().Failures == 0 || st == nil || st.Number() == 1 {
			t.Errorf("%+v, %+v", r.Stats(), st)
		}
	})
}

// An error on the stream answers the renewal that waits; the stream stays, unless the
// namenode says that it is not active.
func TestErrorsOnTheStream(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.open()
		r.file(7)
		r.nn.set(func(n *namenode) {
			n.renewal = func(*pb.RenewLeaseRequest) *pb.RenewLeaseResponse {
				n.say(refusal(fserror.Retry, "overloaded"))
				return nil
			}
		})
		r.RenewNow()
		synctest.Wait()
		if s := r.Stats(); s.Failures != 1 || r.Stream() == nil || r.Stream().Number() != 1 {
			t.Errorf("%+v, %+v", s, r.Stream())
		}
		r.nn.say(refusal(fserror.NotActive, "deposed"))
		pass(time.Second)
		if st := r.Stream(); st == nil || st.Number() == 1 {
			t.Errorf("the stream of one that is not active: %+v", st)
		}
		r.nn.set(func(n *namenode) { n.renewal = nil })
		pass(15 * time.Second) // what is under way ends
		number := r.Stream().Number()
		r.nn.set(func(n *namenode) {
			n.renewal = func(*pb.RenewLeaseRequest) *pb.RenewLeaseResponse {
				n.say(refusal(fserror.NotActive, "deposed"))
				return nil
			}
		})
		r.RenewNow()
		pass(time.Second) // each stream that is opened ends at once, so look at those that were asked for
		r.nn.set(func(n *namenode) {
			if last := n.hellos[len(n.hellos)-1].GetStream(); last == number {
				t.Errorf("the client stays with stream %d of one that answers a renewal with that", number)
			}
		})
	})
}

// What the answer to a renewal says of files.
func TestAnswers(t *testing.T) {
	type outcome struct{ renewed, lost, asks bool }
	for _, c := range []struct {
		name    string
		set     bool // the renewal had it
		closing bool
		resp    *pb.RenewLeaseResponse
		want    outcome
	}{
		{"good", true, false, &pb.RenewLeaseResponse{}, outcome{renewed: true}},
		{"it wants the set", false, false, &pb.RenewLeaseResponse{WantSet: true}, outcome{asks: true}},
		{"it wants the set again", true, false, &pb.RenewLeaseResponse{WantSet: true}, outcome{}},
		{"unknown session, without the set", false, false, &pb.RenewLeaseResponse{UnknownSession: true}, outcome{asks: true}},
		{"unknown session, with the set", true, false, &pb.RenewLeaseResponse{UnknownSession: true}, outcome{lost: true}},
		{"unknown session, while it is closed", true, true, &pb.RenewLeaseResponse{UnknownSession: true}, outcome{}},
		{"lost", true, false, &pb.RenewLeaseResponse{Lost: []*pb.LostFile{{Inode: 7, Epoch: 107}}}, outcome{renewed: true, lost: true}},
		{"lost under another epoch", true, false, &pb.RenewLeaseResponse{Lost: []*pb.LostFile{{Inode: 7, Epoch: 106}}}, outcome{renewed: true}},
		{"lost while it is closed", true, true, &pb.RenewLeaseResponse{Lost: []*pb.LostFile{{Inode: 7, Epoch: 107}}}, outcome{renewed: true}},
		{"unknown", true, false, &pb.RenewLeaseResponse{Unknown: []*pb.OpenRef{{Inode: 7, Epoch: 107}}}, outcome{renewed: true, lost: true}},
		{"unknown while it is closed", true, true, &pb.RenewLeaseResponse{Unknown: []*pb.OpenRef{{Inode: 7, Epoch: 107}}}, outcome{renewed: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.setLimits(60_000, 1_200_000)
				f := r.file(7)
				f.closing = c.closing
				pass(10 * time.Second)
				sent := r.Now()
				pass(time.Second)
				r.answered(&pb.RenewLeaseRequest{HasSet: c.set, Version: r.version}, c.resp, []File{f}, sent)
				got := outcome{f.stamp.Age(r.Now()) == time.Second, f.lost() != nil, len(r.wake) > 0}
				if got != c.want {
					t.Errorf("%+v, want %+v", got, c.want)
				}
				if wantSet := c.resp.GetWantSet() || c.want.asks; r.resend != wantSet {
					t.Errorf("the next renewal has the set: %t", r.resend)
				}
				if why := f.lost(); why != nil && !errors.Is(why, fserror.LeaseLost) {
					t.Errorf("lost with %v", why)
				}
			})
		})
	}
}

// What a lost file's error says.
func TestLostErrors(t *testing.T) {
	for _, c := range []struct {
		file *pb.LostFile
		kind fserror.Kind
		text string
	}{
		{&pb.LostFile{}, fserror.LeaseLost, "the lease was lost"},
		{&pb.LostFile{Reason: "recovered"}, fserror.LeaseLost, "the lease was lost: recovered"},
		{&pb.LostFile{Reason: "deleted"}, fserror.LeaseLostGone, "the lease was lost: deleted"},
		{&pb.LostFile{Reason: "replaced"}, fserror.LeaseLostGone, "the lease was lost: replaced"},
		{&pb.LostFile{Reason: "taken over", NewHolder: &pb.HolderInfo{Client: "b", Host: "h"}}, fserror.LeaseLost, "the lease was lost: taken over by b (host h)"},
	} {
		e := lostError(c.file)
		if e.Kind != c.kind || e.Message != c.text || e.Reason != c.file.GetReason() || (e.Holder != nil) != (c.file.GetNewHolder() != nil) {
			t.Errorf("%v: %+v", c.file, e)
		}
	}
}

// An answer that nobody waits for tells of what was lost, and renews nothing.
func TestToldUnasked(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.open()
		f, other := r.file(7), r.file(8)
		pass(5 * time.Second)
		r.nn.say(&pb.SessionResponse{Kind: &pb.SessionResponse_Renewed{Renewed: &pb.RenewLeaseResponse{Lost: []*pb.LostFile{{Inode: 7, Epoch: 107, Reason: "recovered"}}}}})
		synctest.Wait()
		if f.lost() == nil || other.lost() != nil || other.stamp.Age(r.Now()) != 5*time.Second {
			t.Errorf("%v, %v, %s old", f.lost(), other.lost(), other.stamp.Age(r.Now()))
		}
		r.nn.say(&pb.SessionResponse{Kind: &pb.SessionResponse_CacheRevocation{CacheRevocation: new(pb.CacheRevocation)}})
		synctest.Wait()
		if got := r.cache.told(); !slices.Contains(got, "taken") {
			t.Errorf("the cache was told %v", got)
		}
	})
}

// The holder's hard limit is before the grantor's: by a twentieth, at most a second.
func TestLimit(t *testing.T) {
	s := new(Session)
	for _, c := range []struct{ hard, want time.Duration }{
		{0, math.MaxInt64}, {time.Second, 950 * time.Millisecond}, {20 * time.Second, 19 * time.Second}, {20 * time.Minute, 20*time.Minute - time.Second},
	} {
		s.setLimits(0, c.hard.Milliseconds())
		if got := s.Limit(); got != c.want {
			t.Errorf("of %s: %s, want %s", c.hard, got, c.want)
		}
	}
	s.setLimits(0, 0) // nothing is known
	if s.HardLimit() != 20*time.Minute || s.SoftLimit() != 0 {
		t.Error(s.HardLimit(), s.SoftLimit())
	}
}

// How long a lease is surely not past its soft limit, and that Check ends it at the hard
// one, by the clock that ran further.
func TestRemainingAndCheck(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.setLimits(60_000, 120_000)
		f := r.file(7)
		pass(10 * time.Second)
		if got := r.Remaining(f); got != 49*time.Second {
			t.Errorf("%s remain, want 49 s", got)
		}
		r.clock.ahead.Store(int64(100 * time.Second)) // it was suspended
		if got := r.Remaining(f); got != -51*time.Second {
			t.Errorf("%s remain, want -51 s", got)
		}
		if r.Check(f); f.lost() != nil {
			t.Errorf("lost after 110 s: %v", f.lost())
		}
		pass(9 * time.Second)
		if r.Check(f); f.lost() == nil || !errors.Is(f.lost(), fserror.LeaseLost) {
			t.Errorf("not lost after 119 s of 120 s: %v", f.lost())
		}
	})
}

// The watchdog says once that the lease is in jeopardy, and ends it at the limit, but not
// that of a file whose close is under way; a renewal ends the jeopardy.
func TestWatch(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.setLimits(60_000, 120_000)
		f, closing := r.file(7), r.file(8)
		closing.closing = true
		pass(time.Minute)
		if r.Watch(); r.Stats().Jeopardies != 0 || r.log.count() != 0 || len(r.wake) != 0 {
			t.Error("in jeopardy at its soft limit")
		}
		pass(time.Second)
		r.Watch()
		if r.Watch(); r.Stats().Jeopardies != 1 || r.log.count() != 1 || len(r.wake) != 1 {
			t.Errorf("%+v, %d lines, asked to renew: %d", r.Stats(), r.log.count(), len(r.wake))
		}
		r.answered(&pb.RenewLeaseRequest{}, new(pb.RenewLeaseResponse), []File{f, closing}, r.Now())
		if r.log.count() != 2 {
			t.Errorf("%d lines after a renewal", r.log.count())
		}
		pass(118 * time.Second)
		if r.Watch(); f.lost() != nil || r.Stats().Jeopardies != 2 {
			t.Errorf("before the limit: %v, %+v", f.lost(), r.Stats())
		}
		pass(time.Second)
		if r.Watch(); f.lost() == nil || closing.lost() != nil {
			t.Errorf("at the limit: %v, of one that is closed: %v", f.lost(), closing.lost())
		}
	})
}

// The open session's watchdog runs by itself, also while no namenode answers.
func TestWatchdogRuns(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.nn.welcome.SoftLimitMs, r.nn.welcome.HardLimitMs = 2000, 4000
		r.open()
		f := r.file(7)
		r.nn.set(func(n *namenode) {
			n.renewal = func(*pb.RenewLeaseRequest) *pb.RenewLeaseResponse { return nil }
		})
		pass(3700 * time.Millisecond)
		if synctest.Wait(); f.lost() != nil {
			t.Errorf("lost early: %v", f.lost())
		}
		pass(300 * time.Millisecond)
		if synctest.Wait(); f.lost() == nil || r.Stats().Jeopardies != 1 {
			t.Errorf("not lost, %+v", r.Stats())
		}
	})
}

// The set of open files: what is added, taken out, lost, and the end.
func TestFiles(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.setLimits(80_000, 120_000)
		a, b := r.file(1), r.file(2)
		again := &file{key: a.key}
		r.Remove(again) // another of the same opening
		if len(r.wake) != 0 || len(r.Session.open()) != 2 {
			t.Errorf("%d files, asked to renew: %d", len(r.Session.open()), len(r.wake))
		}
		version := r.version
		r.Remove(a)
		if r.Lost(b); r.version != version+2 || r.Stats().Lost != 1 || len(r.Session.open()) != 0 {
			t.Errorf("version %d after %d, %+v", r.version, version, r.Stats())
		}
		old := &file{key: Key{3, 3}}
		old.stamp.Renew(r.Now())
		pass(10 * time.Second)
		if r.Add(old); len(r.wake) != 0 {
			t.Error("one of an eighth of the soft limit was renewed at once")
		}
		r.Remove(old)
		pass(time.Second)
		if r.Add(old); len(r.wake) != 1 {
			t.Error("one that was granted long ago was not renewed at once")
		}
		if end := r.CloseFiles(); len(end) != 1 || end[0] != File(old) || r.Add(a) || len(r.CloseFiles()) != 2 {
			t.Errorf("the end had %v", end)
		}
	})
}

// Renewals of many clients are spread: 85 to 100 % of what was asked.
func TestPeriod(t *testing.T) {
	s := new(Session)
	s.setLimits(60_000, 0)
	for _, c := range []struct {
		every int64
		want  time.Duration
	}{{20_000, 20 * time.Second}, {0, 30 * time.Second}, {1, 10 * time.Millisecond}} {
		low, high := c.want, time.Duration(0)
		for range 1000 {
			d := s.period(c.every)
			low, high = min(low, d), max(high, d)
		}
		if low < c.want*85/100 || high > c.want || low > c.want*87/100 || high < c.want*98/100 {
			t.Errorf("every %d ms: %s to %s", c.every, low, high)
		}
	}
}
