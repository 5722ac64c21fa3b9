package main

import (
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/leasefs/leasefs/internal/transfer"
)

// bar shows progress on a terminal, and nothing elsewhere.
type bar struct {
	mu  sync.Mutex
	bar *progressbar.ProgressBar // nil: nothing is shown
}

// newBar shows a bar unless standard error is no terminal, or --quiet or
// --json was given.
func (e *invocation) newBar(what string) *bar {
	if e.quiet() || e.json || !isTerminal(e.stderr) {
		return &bar{}
	}
	return &bar{bar: progressbar.NewOptions64(-1,
		progressbar.OptionSetWriter(e.stderr), progressbar.OptionSetDescription(what), progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetRenderBlankState(true))}
}

// newSpinner is newBar for work that does not tell how far it is: it shows that
// it is under way, and since when.
func (e *invocation) newSpinner(what string) *bar {
	b := e.newBar(what)
	if b.bar != nil {
		b.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(e.stderr), progressbar.OptionSetDescription(what),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetRenderBlankState(true), progressbar.OptionSetElapsedTime(true))
	}
	return b
}

// newSteps is newBar for so many steps.
func (e *invocation) newSteps(total int) *bar {
	b := e.newBar("")
	if b.bar != nil {
		b.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(e.stderr), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetRenderBlankState(true), progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false))
	}
	return b
}

// bytes shows how far a copy is. What cannot be drawn is nobody's error.
func (b *bar) bytes(p transfer.Progress) {
	if b.bar == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar.GetMax64() != p.TotalBytes && p.TotalBytes > 0 {
		b.bar.ChangeMax64(p.TotalBytes)
	}
	_ = b.bar.Set64(min(p.Bytes, p.TotalBytes))
}

// set shows how much is done of what nobody knows the end of.
func (b *bar) set(done int64) {
	if b.bar == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.bar.Set64(done)
}

// step shows that the next step begins.
func (b *bar) step(what string, done int) {
	if b.bar == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bar.Describe(what)
	_ = b.bar.Set(done)
}

// finish takes the bar off the screen.
func (b *bar) finish() {
	if b.bar == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.bar.Finish()
}
