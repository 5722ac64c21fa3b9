package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// sink is a file whose flushes take time.
type sink struct {
	ctx     context.Context //nolint:containedctx // as a Writer has one
	takes   time.Duration
	fail    error
	data    bytes.Buffer
	durable int64
	flushes []int64
}

func (s *sink) WriteContext(_ context.Context, p []byte) (int, error) { return s.data.Write(p) }

func (s *sink) Flush(context.Context) error {
	<-time.After(s.takes) // the bubble's clock
	if s.fail != nil {
		return s.fail
	}
	s.durable = int64(s.data.Len())
	s.flushes = append(s.flushes, s.durable)
	return nil
}

func (s *sink) Durable() int64           { return s.durable }
func (s *sink) Context() context.Context { return s.ctx }

// feed writes pieces with a pause after each, then ends the input.
func feed(w *io.PipeWriter, pause time.Duration, pieces ...string) {
	for _, p := range pieces {
		if _, err := io.WriteString(w, p); err != nil {
			return
		}
		<-time.After(pause) // the bubble's clock
	}
	w.Close()
}

func TestPumpFlushes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		opts   PumpOptions
		takes  time.Duration
		pause  time.Duration
		pieces []string
		want   []int64
		told   []int64
	}{
		{name: "a trickle is flushed piece by piece", pause: time.Second, pieces: []string{"ab", "c", "def"}, want: []int64{2, 3, 6}},
		{name: "what comes during a flush goes together", takes: 95 * time.Millisecond, pause: 10 * time.Millisecond,
			pieces: strings.Split("abcdefghijkl", ""), want: []int64{1, 10}},
		{name: "no pause, no flush", pieces: []string{"a", "b", "c"}},
		{name: "lines", opts: PumpOptions{Mode: FlushLine}, pause: time.Second, pieces: []string{"a\nb", "c", "\n", "d"}, want: []int64{2, 5}},
		{name: "block", opts: PumpOptions{Mode: FlushBlock}, pause: time.Second, pieces: []string{"a\n", "b\n"}},
		{name: "interval", opts: PumpOptions{Mode: FlushEvery, Every: 2500 * time.Millisecond}, pause: time.Second,
			pieces: []string{"a", "b", "c", "d", "e", "f"}, want: []int64{3, 6}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sink{ctx: t.Context(), takes: tc.takes}
				var told []int64
				tc.opts.Durable = func(n int64) error {
					told = append(told, n)
					return nil
				}
				r, w := io.Pipe()
				go feed(w, tc.pause, tc.pieces...)
				if err := Pump(t.Context(), s, r, tc.opts); err != nil {
					t.Fatal(err)
				}
				if got := s.data.String(); got != strings.Join(tc.pieces, "") {
					t.Errorf("wrote %q", got)
				}
				if !slices.Equal(s.flushes, tc.want) || !slices.Equal(told, tc.want) {
					t.Errorf("flushed at %v, told %v; want %v", s.flushes, told, tc.want)
				}
			})
		})
	}
}

func TestPumpFloodIsFlushedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{ctx: t.Context(), takes: 5 * time.Millisecond}
		r, w := io.Pipe()
		piece := strings.Repeat("x", 64<<10)
		go feed(w, 2*time.Millisecond, slices.Repeat([]string{piece}, 500)...) // a second
		if err := Pump(t.Context(), s, r, PumpOptions{}); err != nil {
			t.Fatal(err)
		}
		if s.data.Len() != 500<<16 || len(s.flushes) > 10 {
			t.Errorf("%d bytes, %d flushes", s.data.Len(), len(s.flushes))
		}
	})
}

// TestPumpEnds: a blocked read hides neither a lost lease nor a signal.
func TestPumpEnds(t *testing.T) {
	lost := fserror.New(fserror.LeaseLost, "", "/a", "taken over")
	stop := errors.New("stopped")
	for _, tc := range []struct {
		name string
		end  func(lose, cancel context.CancelCauseFunc)
		want error
	}{
		{"lease lost", func(lose, _ context.CancelCauseFunc) { lose(lost) }, lost},
		{"signal", func(_, cancel context.CancelCauseFunc) { cancel(stop) }, stop},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				life, lose := context.WithCancelCause(t.Context())
				ctx, cancel := context.WithCancelCause(t.Context())
				defer lose(nil)
				defer cancel(nil)
				s := &sink{ctx: life}
				r, w := io.Pipe()
				defer w.Close() // frees the reading goroutine
				go func() {
					_, _ = io.WriteString(w, "abc")
					<-time.After(time.Second) // the bubble's clock
					tc.end(lose, cancel)
				}()
				if err := Pump(ctx, s, r, PumpOptions{Mode: FlushLine}); !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				if s.data.Len() != 0 {
					t.Errorf("an unfinished line was written: %q", s.data.String())
				}
			})
		})
	}
}

// fullSink has no room.
type fullSink struct{ sink }

func (s *fullSink) WriteContext(ctx context.Context, _ []byte) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// After a signal what was read is made durable, but for a line that has no end yet: a pipe does not have it
// any more. What is in the pipe stays there.
func TestPumpKeepsWhatItHasRead(t *testing.T) {
	for mode, want := range map[FlushMode]string{FlushIdle: "one\ntwo\nthr", FlushLine: "one\ntwo\n", FlushBlock: "one\ntwo\nthr"} {
		synctest.Test(t, func(t *testing.T) {
			stop := errors.New("stopped")
			ctx, cancel := context.WithCancelCause(t.Context())
			s := &sink{ctx: t.Context(), takes: time.Second} // what comes meanwhile gathers
			r, w := io.Pipe()
			defer w.Close()
			go func() {
				for _, piece := range []string{"one\n", "two\n", "thr"} {
					_, _ = io.WriteString(w, piece)
					<-time.After(trickleGap + time.Millisecond) // the bubble's clock
				}
				cancel(stop)
			}()
			if err := Pump(ctx, s, r, PumpOptions{Mode: mode}); !errors.Is(err, stop) {
				t.Errorf("%v", err)
			}
			if got := s.data.String(); got != want || s.durable != int64(len(want)) {
				t.Errorf("%v: %q of which %d are durable, not %q", mode, got, s.durable, want)
			}
		})
	}
}

// A signal ends a write that waits for room, after a while.
func TestPumpEndsWhileItWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		began := time.Now()
		err := Pump(ctx, &fullSink{sink{ctx: t.Context()}}, strings.NewReader("a"), PumpOptions{})
		if !errors.Is(err, stop) || time.Since(began) != time.Second+stopGrace {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestPumpErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad")
		r, w := io.Pipe()
		go func() { w.CloseWithError(bad) }()
		if err := Pump(t.Context(), &sink{ctx: t.Context()}, r, PumpOptions{}); !errors.Is(err, bad) {
			t.Errorf("read: %v", err)
		}
		r, w = io.Pipe()
		defer w.Close()
		go func() { _, _ = io.WriteString(w, "a") }()
		if err := Pump(t.Context(), &sink{ctx: t.Context(), fail: bad}, r, PumpOptions{}); !errors.Is(err, bad) {
			t.Errorf("flush: %v", err)
		}
	})
}

func TestLastLines(t *testing.T) {
	long := strings.Repeat("x", 100<<10) + "\n"
	for _, tc := range []struct {
		text string
		n    int64
		want string
	}{
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc", 2, "b\nc"},
		{"a\nb\nc\n", 0, ""},
		{"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"", 5, ""},
		{"\n\n\n", 2, "\n\n"},
		{"a\n" + long + long, 2, long + long},
		{"a\n" + long + long, 3, "a\n" + long + long},
	} {
		at, err := LastLines(strings.NewReader(tc.text), int64(len(tc.text)), tc.n)
		if err != nil || tc.text[at:] != tc.want {
			t.Errorf("%.20q, %d: from %d, %v", tc.text, tc.n, at, err)
		}
	}
}

func TestFirstLines(t *testing.T) {
	long := strings.Repeat("x", 200<<10) // longer than any buffer
	for _, tc := range []struct {
		text string
		n    int64
		want string
	}{
		{"a\nb\nc\n", 2, "a\nb\n"}, {"a\nb", 5, "a\nb"}, {"a\nb\n", 0, ""}, {"", 1, ""}, {"\n\n\n", 2, "\n\n"},
		{long + "\nb\nc\n", 2, long + "\nb\n"}, {long, 1, long},
	} {
		var b bytes.Buffer
		if err := FirstLines(&b, strings.NewReader(tc.text), tc.n); err != nil || b.String() != tc.want {
			t.Errorf("%.20q, %d: %.20q of %d bytes, %v", tc.text, tc.n, b.String(), b.Len(), err)
		}
	}
}
