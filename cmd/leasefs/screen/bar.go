package screen

import (
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/leasefs/leasefs/internal/transfer"
)

// Bar shows progress on a terminal, and nothing elsewhere.
type Bar struct {
	mu  sync.Mutex
	bar *progressbar.ProgressBar // nil: nothing is shown
}

// bar shows one unless standard error is no terminal, or --quiet or --json was given. Each that is made
// draws itself until it is finished.
func (p *Printer) bar(total int64, options ...progressbar.Option) *Bar {
	if p.Quiet || p.JSON || !IsTerminal(p.Stderr) {
		return &Bar{}
	}
	return &Bar{bar: progressbar.NewOptions64(total, append(options,
		progressbar.OptionSetWriter(p.Stderr), progressbar.OptionClearOnFinish(), progressbar.OptionSetRenderBlankState(true))...)}
}

// NewBar shows how many bytes are done.
func (p *Printer) NewBar(what string) *Bar {
	return p.bar(-1, progressbar.OptionSetDescription(what), progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond))
}

// NewSpinner is NewBar for work that does not tell how far it is: it shows that
// it is under way, and since when.
func (p *Printer) NewSpinner(what string) *Bar {
	return p.bar(-1, progressbar.OptionSetDescription(what), progressbar.OptionSetElapsedTime(true))
}

// NewSteps is NewBar for so many steps.
func (p *Printer) NewSteps(total int) *Bar {
	return p.bar(int64(total), progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false))
}

// Bytes shows how far a copy is. What cannot be drawn is nobody's error.
func (b *Bar) Bytes(p transfer.Progress) {
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

// Set shows how much is done of what nobody knows the end of.
func (b *Bar) Set(done int64) {
	if b.bar == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.bar.Set64(done)
}

// Step shows that the next step begins.
func (b *Bar) Step(what string, done int) {
	if b.bar == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bar.Describe(what)
	_ = b.bar.Set(done)
}

// Finish takes the bar off the screen.
func (b *Bar) Finish() {
	if b.bar == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.bar.Finish()
}
