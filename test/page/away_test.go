package page

import (
	"fmt"
	"testing"

	"github.com/leasefs/leasefs/test/env"
)

// banner is what the page says that does not work; empty: nothing.
const banner = "(document.getElementById('trouble').hidden ? '' : document.getElementById('trouble').textContent)"

// TestPageWhileTheNamenodeIsAway: a view that is opened while the namenode is away has its rows once
// it is back, whatever was shown before, and the page does not say any more that it is away.
func TestPageWhileTheNamenodeIsAway(t *testing.T) {
	n := env.Start(t, patient)
	n.Raw(t, "ingest").Create("/app.log")
	b := open(t, n)
	b.signIn("root")
	const is = "document.getElementById('view').dataset.view === %q && document.getElementById('view').dataset.ready === 'yes'"
	for i, c := range []struct{ from, key, view, shows string }{
		{"#/tree/", "1", "holders", "ingest"},
		{"#/changes", "3", "tree", "app.log"},
		{"#/holders", "6", "changes", "up to change"},
		{"#/tree/", "", "tree", "app.log"},
		{"#/changes", "", "changes", "up to change"},
	} {
		b.view(c.from)
		b.runs("load the page", "document.getElementById('view').dataset.old = 'yes'; location.reload()") // it has read nothing else yet
		b.until("it is loaded", "!document.getElementById('view').dataset.old && document.getElementById('view').dataset.ready === 'yes'")
		b.until("nothing is wrong", banner+" === ''")
		n.Stop(t)
		b.until("it says that the namenode is away", banner+".includes('this is tried again')")
		if c.key != "" {
			b.keys(c.key)
			b.until("key "+c.key, fmt.Sprintf(is, c.view))
			if got := b.value(rows); got != "0" {
				t.Errorf("%s after %s: %s rows of another view", c.view, c.from, got)
			}
		}
		n.Start(t)
		b.until("nothing is wrong any more", banner+" === ''")
		b.until(c.view+" is shown", fmt.Sprintf(is, c.view))
		b.shows(c.shows)
		if c.view == "changes" {
			made := fmt.Sprint("/made-", i)
			n.Raw(t, "maker").Create(made)
			b.shows(made)
		}
	}
	b.end()
}

// holdBack has answers about leases wait, of requests that have the text window.holds, until window.let is called.
const holdBack = `{
	const was = window.fetch.bind(window);
	let held = [];
	window.waits = () => held.length;
	window.let = () => { window.holds = null; held.forEach((f) => f()); held = []; };
	window.fetch = async (url, o) => {
		const r = await was(url, o);
		if (window.holds && url.includes("ListLeases") && o.body.includes(window.holds)) await new Promise((f) => { held.push(f); });
		return r;
	};
}`

// TestPageTurnsAndFilters: a page is turned once by each answer, one that fails turns nothing, and what
// was asked for first is not shown over what was asked for last.
func TestPageTurnsAndFilters(t *testing.T) {
	n := env.Start(t, patient)
	hold(t, n, 120) // three pages
	b := open(t, n)
	b.signIn("root")
	b.shows("page 1, 50 leases")
	b.runs("hold answers back", holdBack+"; window.holds = 'cursor'")
	b.keys("nn")
	b.until("it is asked for", "window.waits() > 0")
	b.runs("let them come", "window.let()")
	b.until("a page is turned", text+".includes('page 2, 50 leases')")
	b.keys("n")
	b.shows("page 3, 20 leases")
	b.keys("p")
	b.shows("page 2, 50 leases")

	b.runs("have a turn fail", "{ const was = window.fetch; window.fetch = (url, o) => { if (!url.includes('ListLeases')) return was(url, o); window.fetch = was; return Promise.reject(new TypeError('cut')); }; }")
	b.keys("n")
	b.shows("page 3, 20 leases") // it is tried again
	b.until("nothing is wrong any more", banner+" === ''")
	b.keys("p")
	b.shows("page 2, 50 leases")
	b.keys("p")
	b.shows("page 1, 50 leases")

	b.runs("hold the periodic answers back", "window.holds = '\"text\":\"\"'")
	b.until("one is asked for", "window.waits() > 0")
	b.filter("client-000007")
	b.until("it is filtered", rows+" === 1")
	b.runs("let the older one come", "window.let(); setTimeout(() => { window.settled = true; }, 500)")
	b.until("it has come", "window.settled")
	if got := b.value(rows); got != "1" {
		t.Errorf("%s rows, of an older answer", got)
	}
	b.end()
}
