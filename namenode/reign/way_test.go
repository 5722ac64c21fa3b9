package reign

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/election"
)

// Who makes way, and for whom.
func TestMakingWay(t *testing.T) {
	fit := func(txid uint64) *election.Report { return &election.Report{TxID: txid} }
	full := func(txid uint64) *election.Report { return &election.Report{TxID: txid, Unfit: "full"} }
	for _, test := range []struct {
		what   string
		own    *election.Report
		others []*election.Report // of b, c, ...; nil is of an older release
		want   string
	}{
		{"alone", full(5), nil, ""},
		{"fit, as far as the others", fit(5), []*election.Report{fit(5), fit(4), full(9), nil}, ""},
		{"fit, and behind", fit(5), []*election.Report{fit(5), fit(6), fit(7)}, "c"},
		{"full, and another is fit", full(5), []*election.Report{full(5), fit(5)}, "c"},
		{"full, and who is fit is behind", full(5), []*election.Report{fit(4)}, "b"},
		{"full, and another does not say", full(5), []*election.Report{full(5), nil}, "c"},
		{"all full", full(5), []*election.Report{full(6), full(5)}, ""},
	} {
		var others []election.Member
		for i, r := range test.others {
			others = append(others, election.Member{Address: string(rune('b' + i)), Report: r})
		}
		var w way
		if got := w.makeFor(0, true, *test.own, others); got != test.want {
			t.Errorf("%s: makes way for %q, want %q", test.what, got, test.want)
		}
		if got := w.makeFor(leastReign, true, *test.own, others); got != "" {
			t.Errorf("%s: makes way again for %q", test.what, got)
		}
	}
}

// However the candidates change their minds, and however late their reports come, one of
// them serves before each has made way more often than there are changes to report.
func TestMakingWayEnds(t *testing.T) {
	const end = 20 // the journal's
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // reproducible
		line := make([]int, 2+r.IntN(4))
		ways, applied := make([]way, len(line)), make([]uint64, len(line))
		reports := make([]*election.Report, len(line))
		for i := range line {
			line[i], reports[i] = i, new(election.Report)
		}
		moves := 0
		for served := false; !served; moves++ {
			if moves > len(line)*(end+2) {
				t.Fatalf("seed %d: %d candidates have made way %d times", seed, len(line), moves)
			}
			for i := range line {
				applied[i] += r.Uint64N(min(2, end-applied[i]) + 1)
				if r.IntN(3) > 0 { // each is as wrong about itself as it can be
					reports[i] = &election.Report{TxID: applied[i]}
				}
			}
			own := election.Report{TxID: applied[line[0]], Unfit: "full"}
			var others []election.Member
			for _, i := range line[1:] {
				others = append(others, election.Member{Address: fmt.Sprint(i), Report: reports[i]})
			}
			if served = ways[line[0]].makeFor(time.Duration(moves)*leastReign, r.IntN(2) > 0, own, others) == ""; !served {
				line = slices.Concat(line[1:], line[:1])
			}
		}
		if moves == 1 {
			t.Fatalf("seed %d: nobody has made way", seed)
		}
	}
}

// Who is fit and fails again and again is made way for once in a while only; who hands
// over in order, whenever it does.
func TestMakingWayForWhoEndsAgain(t *testing.T) {
	var w way
	own := election.Report{TxID: 5, Unfit: "full"}
	b := func(txid uint64) []election.Member {
		return []election.Member{{Address: "b", Report: &election.Report{TxID: txid}}}
	}
	for i, step := range []struct {
		now      time.Duration
		released bool
		want     string
	}{{time.Second, false, "b"}, {2 * time.Second, false, ""}, {leastReign, false, ""}, {time.Second + leastReign, false, "b"}, {2*time.Second + leastReign, true, "b"}} {
		if got := w.makeFor(step.now, step.released, own, b(6+uint64(i))); got != step.want { //nolint:gosec // small
			t.Errorf("after %v it makes way for %q, want %q", step.now, got, step.want)
		}
	}
}

// What an operator reads of a standby.
func TestWordsOfStandbys(t *testing.T) {
	m := election.Member{Address: "10.0.0.3:9000", Report: &election.Report{TxID: 1}}
	for txid, want := range map[uint64]string{
		0: "", 1: "", 2: "10.0.0.3:9000 is 1 change behind", 1000: "10.0.0.3:9000 is 999 changes behind",
		1235: "10.0.0.3:9000 is 1,234 changes behind", 12_345_679: "10.0.0.3:9000 is 12,345,678 changes behind",
	} {
		if got := unready(m, txid); got != want {
			t.Errorf("of %d changes: %q, want %q", txid, got, want)
		}
	}
}
