// Package report is what an experiment leaves behind: tables and pictures, kept as JSON,
// from which docs/EXPERIMENTS.md and its pictures are made.
package report

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Result is one run of one experiment.
type Result struct {
	ID     string    `json:"id"` // a capital letter
	Title  string    `json:"title"`
	Began  time.Time `json:"began"`
	Took   float64   `json:"took_s"`
	Where  string    `json:"where"` // machine and versions, for people
	Quick  bool      `json:"quick"` // sizes too small to quote
	Tables []Table   `json:"tables"`
	Charts []Chart   `json:"charts"`
}

// Table has cells as they are shown.
type Table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// Row adds a row of cells, each a string, a number or a duration.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Show(c)
	}
	t.Rows = append(t.Rows, row)
}

// Chart is a picture of lines over one pair of axes.
type Chart struct {
	Name   string   `json:"name"` // of its file, after the ID
	Title  string   `json:"title"`
	X      Axis     `json:"x"`
	Y      Axis     `json:"y"`
	Series []Series `json:"series"`
}

// Axis is linear or logarithmic. Its range comes from the points; a linear one begins at 0.
type Axis struct {
	Label string `json:"label"`
	Log   bool   `json:"log,omitempty"`
}

// Series is one line.
type Series struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"`
	Dashed bool         `json:"dashed,omitempty"` // a model, not a measurement
	Steps  bool         `json:"steps,omitempty"`  // of a distribution
}

// Add adds a point.
func (s *Series) Add(x, y float64) { s.Points = append(s.Points, [2]float64{x, y}) }

// Show writes a cell: numbers with three digits at least, durations in a fitting unit.
func Show(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case time.Duration:
		switch {
		case v == 0:
			return "0"
		case v < time.Microsecond:
			return fmt.Sprintf("%d ns", v)
		case v < time.Millisecond:
			return Show(float64(v)/float64(time.Microsecond)) + " µs"
		case v < time.Second:
			return Show(float64(v)/float64(time.Millisecond)) + " ms"
		}
		return Show(v.Seconds()) + " s"
	case int:
		return thousands(fmt.Sprint(v))
	case uint64:
		return thousands(fmt.Sprint(v))
	case float64:
		switch a := math.Abs(v); {
		case math.IsNaN(v):
			return "–"
		case math.IsInf(v, 0):
			return "∞"
		case a == 0:
			return "0"
		case a < 0.995:
			return fmt.Sprintf("%.3g", v)
		case a < 9.995:
			return fmt.Sprintf("%.2f", v)
		case a < 99.95:
			return fmt.Sprintf("%.1f", v)
		}
		return thousands(fmt.Sprintf("%.0f", v))
	}
	return fmt.Sprint(v)
}

func thousands(s string) string {
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Save writes the result into a folder, as ID.json.
func (r *Result) Save(dir string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.ID+".json"), append(text, '\n'), 0o640)
}

// Load reads a result.
func Load(file string) (*Result, error) {
	text, err := os.ReadFile(file) //nolint:gosec // of the run that is shown
	if err != nil {
		return nil, err
	}
	r := new(Result)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// Picture is the name of a chart's file.
func (r *Result) Picture(c Chart) string { return r.ID + "-" + c.Name + ".svg" }

// Markdown is the result as text for a page whose pictures are in the folder images.
func (r *Result) Markdown(images string) string {
	var b strings.Builder
	quick := ""
	if r.Quick {
		quick = " · **a quick run: sizes too small to quote**"
	}
	fmt.Fprintf(&b, "%s · %.0f s · %s%s\n", r.Began.UTC().Format(time.DateOnly), r.Took, r.Where, quick)
	for _, t := range r.Tables {
		if t.Title != "" {
			fmt.Fprintf(&b, "\n%s\n", t.Title)
		}
		fmt.Fprintf(&b, "\n| %s |\n|---|%s\n", strings.Join(t.Columns, " | "), strings.Repeat("---:|", len(t.Columns)-1))
		for _, row := range t.Rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
	}
	for _, c := range r.Charts {
		fmt.Fprintf(&b, "\n![%s](%s/%s)\n", c.Title, images, r.Picture(c))
	}
	return b.String()
}

// Marks of the part of a page that a run rewrites.
const (
	beginMark = "<!-- run %s -->\n"
	endMark   = "<!-- end of run %s -->\n"
)

// Replace replaces the former result in a page.
func (r *Result) Replace(page, images string) (string, error) {
	begin, end := fmt.Sprintf(beginMark, r.ID), fmt.Sprintf(endMark, r.ID)
	before, rest, ok := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("the page has no place for the results of experiment %s: a line %q, then a line %q", r.ID, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + "\n" + r.Markdown(images) + "\n" + end + after, nil
}

// Draw makes the pictures of all results in a folder, beside them, and returns the page
// with their tables in the place of the former ones.
func Draw(dir, page string) (string, error) {
	text, err := os.ReadFile(page) //nolint:gosec // as asked for
	if err != nil {
		return "", err
	}
	images, err := filepath.Rel(filepath.Dir(page), dir)
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return "", err
	}
	shown := string(text)
	for _, file := range files {
		r, err := Load(file)
		if err != nil {
			return "", err
		}
		for _, c := range r.Charts {
			if err := os.WriteFile(filepath.Join(dir, r.Picture(c)), []byte(c.SVG()), 0o640); err != nil {
				return "", err
			}
		}
		if shown, err = r.Replace(shown, filepath.ToSlash(images)); err != nil {
			return "", err
		}
	}
	return shown, nil
}
