package sim

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The trace of a world has what happened, in JSON and in a page that asks nobody.
func TestTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(t, Config{Seed: 7, Calm: true, S3: true})
		done := w.log.begin(&event{Who: "c1", Kind: callEvent, What: "Create /f at nn0"})
		fault := &event{Who: "fault", Kind: faultEvent, What: "cut"}
		heal := w.log.begin(fault)
		w.log.hits(fault, []string{"nn1"})
		<-time.After(time.Second)
		done(errors.New("no answer"))
		w.truth.broken("a promise </script>")
		heal(nil)
		path, err := w.WriteTrace(t.TempDir(), "x")
		if err != nil {
			t.Fatal(err)
		}
		read := func(end string) string {
			raw, err := os.ReadFile(path + end)
			if err != nil {
				t.Fatal(err)
			}
			return string(raw)
		}
		var got trace
		if err := json.Unmarshal([]byte(read(".json")), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Events) != 3 || got.Seed != 7 || !got.S3 {
			t.Fatalf("%+v", got)
		}
		if e := got.Events[0]; e.Who != "c1" || e.End != 1 || e.Error != "no answer" {
			t.Errorf("a call: %+v", e)
		}
		if e := got.Events[1]; e.Kind != faultEvent || e.End != 1 || len(e.Hits) != 1 {
			t.Errorf("a fault: %+v", e)
		}
		if e := got.Events[2]; e.Kind != brokenEvent || e.At != 1 {
			t.Errorf("a broken promise: %+v", e)
		}
		if text := read(".txt"); text != "     1.000s BROKEN a promise </script>\n" {
			t.Errorf("the text: %q", text)
		}
		page := read(".html")
		if strings.Count(page, "</script>") != 2 || strings.Contains(page, traceMark) || strings.Contains(page, "http") {
			t.Error("the page is broken by what it shows, or asks others")
		}
		w.end()
	})
}
