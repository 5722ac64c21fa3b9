package page

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/leasefs/leasefs/test/env"
)

// tab is a tab of Chromium that shows a namenode's page.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // of the browser

	started bool

	mu    sync.Mutex
	wrong []string // requests to others, errors of scripts, breaches of the policy
	most  float64  // bytes of an answer
}

// open starts Chromium and shows the page.
func open(t *testing.T, n *env.Namenode, flags ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	opts := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.NoSandbox, chromedp.DisableGPU)
	opts = append(opts, flags...)
	scheme := "http"
	if n.Config().TLS != nil {
		scheme = "https"
	}
	alloc, end := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(end)
	ctx, leave := chromedp.NewContext(alloc)
	t.Cleanup(leave)
	b := &tab{t: t, ctx: ctx}
	b.do("start the browser", chromedp.EmulateViewport(1100, 800))
	host := n.HTTPAddr()
	if err := chromedp.Listen(ctx, func(ev any) { b.note(ev, host) }); err != nil {
		t.Fatal(err)
	}
	b.do("open the page", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, nerr := cdp.Call(ctx, t, network.Enable, network.EnableParams{})
		_, lerr := cdp.Call(ctx, t, log.Enable, cdp.Empty{})
		return errors.Join(nerr, lerr)
	}), chromedp.Navigate(scheme+"://"+host+"/"))
	return b
}

// note keeps what a page must not do.
func (b *tab) note(ev any, host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(ev.Request.URL); err != nil || u.Host != host {
			b.wrong = append(b.wrong, "a request to "+ev.Request.URL)
		}
	case *network.EventLoadingFinished:
		b.most = max(b.most, ev.EncodedDataLength)
	case *runtime.EventExceptionThrown:
		text := ev.ExceptionDetails.Text
		if e := ev.ExceptionDetails.Exception; e != nil {
			text += " " + e.Description
		}
		b.wrong = append(b.wrong, text)
	case *log.EventEntryAdded:
		if ev.Entry.Source == log.EntrySourceSecurity || strings.Contains(ev.Entry.Text, "Content Security Policy") {
			b.wrong = append(b.wrong, ev.Entry.Text)
		}
	}
}

// end makes sure that nothing was wrong.
func (b *tab) end() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.wrong {
		b.t.Error(w)
	}
}

// do runs actions, each of which has two minutes: the machine may be busy.
func (b *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for _, a := range actions {
		if err := b.try(a); err != nil {
			b.t.Fatalf("%s: %v; the page shows:\n%s", what, err, b.text())
		}
	}
}

func (b *tab) try(a chromedp.Action[chromedp.Void]) error {
	if !b.started { // the first context is the browser's
		b.started = true
		return chromedp.Do(b.ctx, a)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	return chromedp.Do(ctx, a)
}

func (b *tab) text() string {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// until waits until an expression is true.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	defer func() {
		if b.t.Failed() {
			b.t.Logf("%s: the page shows:\n%s", what, b.text())
		}
	}()
	env.Until(ctx, b.t, what, func() bool {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		return err == nil && is
	})
}

func (b *tab) value(expression string) string {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return out
}

// runs runs a script.
func (b *tab) runs(what, script string) {
	b.t.Helper()
	b.do(what, chromedp.Evaluate[chromedp.Void](script))
}

// choose takes another of the values of a field.
func (b *tab) choose(name, value string) {
	b.t.Helper()
	b.runs(name+" "+value, fmt.Sprintf("{ const f = document.querySelector('#view [name=%s]'); f.value = %q; f.dispatchEvent(new Event('input')); }", name, value))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.do("click "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// link follows the link that has that text, once it is there.
func (b *tab) link(text string) {
	b.t.Helper()
	found := fmt.Sprintf("[...document.querySelectorAll('#view a')].find((a) => a.textContent === %q)", text)
	b.until("there is a link "+text, found)
	b.runs("follow "+text, found+".click()")
}

func (b *tab) keys(keys string) {
	b.t.Helper()
	b.do("press "+keys, chromedp.KeyEvent(keys))
}

// focuses waits until the element that has the focus, a, is what an expression says.
func (b *tab) focuses(what, expression string) {
	b.t.Helper()
	b.until("the focus is on "+what, fmt.Sprintf("((a) => %s)(document.activeElement)", expression))
}

// filter goes to the filter by its key, and types.
func (b *tab) filter(what string) {
	b.t.Helper()
	b.keys("/")
	b.until("the filter has the focus", "document.activeElement.name === 'text'")
	b.runs("empty it", "document.activeElement.value = ''") // the driver types the key into it, too
	b.keys(what)
}

// view goes to a view, by its address.
func (b *tab) view(hash string) {
	b.t.Helper()
	name, _, _ := strings.Cut(strings.ReplaceAll(strings.TrimPrefix(hash, "#/"), "?", "/"), "/")
	b.runs(hash, fmt.Sprintf("location.hash = %q", hash))
	b.until(hash+" is there", fmt.Sprintf("document.getElementById('view').dataset.view === %q && document.getElementById('view').dataset.ready === 'yes' && decodeURIComponent(location.hash) === decodeURIComponent(%q)", name, hash))
}

// picture keeps what the page shows, for the docs.
func (b *tab) picture(name string) {
	b.t.Helper()
	folder := os.Getenv("LEASEFS_PICTURES")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644); err != nil { //nolint:gosec // a picture for all
		b.t.Fatal(err)
	}
}

const (
	text = "document.getElementById('view').innerText"
	rows = "document.querySelectorAll('tbody tr').length"
)

func (b *tab) shows(what string) {
	b.t.Helper()
	b.until("it shows "+what, fmt.Sprintf("%s.includes(%q)", text, what))
}

func (b *tab) signIn(user string) {
	b.t.Helper()
	b.until("it asks who that is", "document.querySelector('dialog input[name=user]') !== null")
	b.do("sign in", chromedp.SendKeys(chromedp.CSS("dialog input[name=user]"), user+"\r"))
	b.until("it knows", fmt.Sprintf("document.getElementById('who').textContent.startsWith(%q) && document.getElementById('view').dataset.ready === 'yes'", user))
}
