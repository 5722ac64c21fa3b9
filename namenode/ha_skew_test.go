package namenode_test

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode"
)

// metric is the value of a metric without labels.
func metric(t *testing.T, s *namenode.Server, name string) (value float64, there bool) {
	t.Helper()
	_, text := page(t, s.HTTPAddr(), "/metrics")
	_, rest, there := strings.Cut(text, "\n"+name+" ")
	if !there {
		return 0, false
	}
	line, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(line, 64)
	if err != nil {
		t.Error(err)
	}
	return value, true
}

// TestAWrongClockIsTold: each namenode compares its time of day with ZooKeeper's.
// Whose is wrong says so in its status, its metrics and, once, its log, and once
// more when it is right again. It takes over all the same.
func TestAWrongClockIsTold(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	const wrong = -11 * time.Minute
	right, other := new(lines), new(lines)
	acfg, _ := p.config(func(c *namenode.Config) { c.Logger = slog.New(slog.NewTextHandler(right, nil)) })
	clk := new(wrongClock)
	clk.ahead.Store(int64(wrong))
	bcfg, _ := p.config(func(c *namenode.Config) { c.Clock, c.Logger = clk, slog.New(slog.NewTextHandler(other, nil)) })
	a := p.active(acfg)
	b := p.start(bcfg)
	skewOf := func(cfg namenode.Config) *clock.Skew {
		t.Helper()
		list, err := client.QueryStatus(t.Context(), client.Config{Namenodes: []string{cfg.Listen}})
		if err != nil {
			t.Fatal(err)
		}
		return list[0].ZooKeeperClock
	}
	// is reports whether that can be how far a clock is ahead.
	is := func(s *clock.Skew, ahead time.Duration) bool {
		const rounded = time.Millisecond
		return s != nil && s.Bound > 0 && s.Ahead-s.Bound-rounded <= ahead && ahead <= s.Ahead+s.Bound+rounded && s.Bound < time.Minute
	}
	const differs, agrees = "time of day differs", "agrees with the other's again"
	p.eventually("both have compared", func() bool { return is(skewOf(acfg), 0) && is(skewOf(bcfg), wrong) })
	p.eventually("the wrong one warns", func() bool {
		b.CompareClocks()
		return other.Count(differs) == 1
	})
	for name, s := range map[string]*namenode.Server{"right": a, "wrong": b} {
		skew, there := metric(t, s, "leasefs_clock_skew_seconds")
		bound, also := metric(t, s, "leasefs_clock_skew_bound_seconds")
		if !there || !also || (max(skew, -skew)-bound > 2) != (name == "wrong") {
			t.Errorf("the %s clock: skew %v (%t), bound %v (%t)", name, skew, there, bound, also)
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	p.becomes(b, "active")
	clk.ahead.Store(0)
	p.eventually("the wrong one is right", func() bool {
		b.CompareClocks()
		return is(skewOf(bcfg), 0) && other.Count(agrees) == 1
	})
	if n := other.Count(differs); n != 1 {
		t.Errorf("warned %d times", n)
	}
	if right.has(differs) || right.has(agrees) {
		t.Error("the right one warned")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
