package sim

import (
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// event is something that has happened, by the time since the work began.
type event struct {
	At    float64   `json:"at"`            // seconds since the work began
	End   float64   `json:"end,omitempty"` // of what lasted; 0 if it had not ended
	Who   string    `json:"who"`
	Kind  eventKind `json:"kind"`
	What  string    `json:"what"`
	Hits  []string  `json:"hits,omitempty"`  // machines, of a fault
	Error string    `json:"error,omitempty"` // of a call
}

type eventKind string

// The kinds of events. A fault and a call last.
const (
	faultEvent  eventKind = "fault"
	callEvent   eventKind = "call"
	logEvent    eventKind = "log"
	warnEvent   eventKind = "warn"
	noteEvent   eventKind = "note"
	brokenEvent eventKind = "broken"
)

func (h *history) hits(e *event, who []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.Hits = who
}

// trace is a world as a page draws it.
type trace struct {
	Seed   uint64   `json:"seed"`
	S3     bool     `json:"s3"`
	Actors []string `json:"actors"` // in the order of their lanes
	Events []*event `json:"events"`
}

// tracePage draws a trace, which replaces traceMark.
//
//go:embed trace.html
var tracePage string

const traceMark = "/*TRACE*/"

// WriteTrace writes what has happened to three files in dir: NAME.txt has a line for
// each event without length, NAME.json all, and NAME.html draws it in a browser. It
// returns the path of the page without its ending.
func (w *Work) WriteTrace(dir, name string) (string, error) {
	t := trace{Seed: w.with.Seed, S3: w.with.S3, Actors: []string{"fault"}}
	for _, c := range w.everybody() {
		t.Actors = append(t.Actors, c.name)
	}
	t.Actors = append(append(t.Actors, w.with.Machines...), "world")
	text := w.History()
	w.log.mu.Lock()
	t.Events = w.log.events
	raw, err := json.Marshal(t)
	w.log.mu.Unlock()
	path := filepath.Join(dir, name)
	for end, content := range map[string]string{".txt": text, ".json": string(raw), ".html": strings.Replace(tracePage, traceMark, string(raw), 1)} {
		if err == nil {
			err = os.WriteFile(path+end, []byte(content), 0o600)
		}
	}
	return path, err
}
