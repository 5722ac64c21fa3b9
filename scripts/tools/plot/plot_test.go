package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `{"name": "create", "workers": 1, "rate": 900}
{"name": "create", "workers": 32, "rate": 20000}

{"name": "create", "workers": 32, "rate": 24000}
{"name": "create", "workers": 32, "rate": 90000}
{"name": "create", "workers": 256, "rate": null}
{"name": "stat", "workers": 1, "rate": 4000}
{"name": "stat", "workers": 256, "rate": 80000}
{"name": "flush", "workers": 1}
`

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// drawn is what the program makes of a file's text.
func drawn(t *testing.T, text string, more ...string) (svg []byte, err error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.svg")
	c, out, files, err := parse(append(append([]string{"--x", "workers", "--y", "rate", "--series", "name", "--out", out}, more...), write(t, text)))
	if err != nil {
		t.Fatal(err)
	}
	if err = run(c, out, files); err != nil {
		return nil, err
	}
	svg, err = os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return svg, nil
}

// TestEqual: equal input gives equal bytes, whatever the order of maps.
func TestEqual(t *testing.T) {
	var first []byte
	for range 20 {
		svg, err := drawn(t, sample, "--log-x", "--log-y", "--title", "a title", "--x-label", "workers <at once>", "--y-label", "operations/s")
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = svg
		}
		if !bytes.Equal(first, svg) {
			t.Fatal("two drawings of the same lines differ")
		}
	}
	for _, want := range []string{"a title", "workers &lt;at once&gt;", "operations/s", ">create<", ">stat<", ">10k<", ">100<"} {
		if !bytes.Contains(first, []byte(want)) {
			t.Errorf("the chart does not say %q", want)
		}
	}
	if bytes.Contains(first, []byte(">flush<")) {
		t.Error("a series without a point has a name in the chart")
	}
	for d := xml.NewDecoder(bytes.NewReader(first)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("no XML: %v", err)
		}
	}
}

func TestPoints(t *testing.T) {
	c := chart{x: "workers", y: "rate", series: "name", where: filters{"name": {"create"}}, xScale: 2, yScale: 0.5}
	var all []*line
	if err := c.read("in", strings.NewReader(sample), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].name != "create" {
		t.Fatalf("%d series, want create alone", len(all))
	}
	xs, ys := all[0].points()
	if len(xs) != 2 || xs[0] != 2 || xs[1] != 64 || ys[0] != 450 || ys[1] != 12000 { // the median of three
		t.Errorf("points at %v, %v", xs, ys)
	}
}

// TestAnyRange: no values of which an axis cannot be made.
func TestAnyRange(t *testing.T) {
	for _, text := range []string{
		`{"name": "a", "workers": 0, "rate": 0}`,
		`{"name": "a", "workers": 5, "rate": -3}`,
		`{"name": "a", "workers": 1e12, "rate": 1e-12}` + "\n" + `{"name": "a", "workers": 1e12, "rate": 1e-12}`,
		`{"name": "a", "workers": -1, "rate": -1}` + "\n" + `{"name": "a", "workers": 1, "rate": 1e9}`,
	} {
		if _, err := drawn(t, text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := drawn(t, `{"name": "a", "workers": 3, "rate": 0.001}`, "--log-x", "--log-y"); err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	many := ""
	for i := range 30 {
		many += `{"name": "` + strings.Repeat("x", i+1) + `", "workers": 1, "rate": 1}` + "\n"
	}
	for _, test := range []struct{ text, want string }{
		{"{\"workers\": 1}\n{\"workers\": ", "in.jsonl:2: unexpected end of JSON input"},
		{"\n\n[1]", "in.jsonl:3: json: cannot unmarshal array"},
		{`{"workers": "1", "rate": 2, "name": "a"}`, `in.jsonl:1: "workers" is 1, no number`},
		{`{"workers": 1, "rate": 0, "name": "a"}`, `in.jsonl:1: "rate" is 0, which has no place on a logarithmic axis`},
		{`{"workers": 1, "rate": 2}`, `in.jsonl:1: "name", which names its series, is missing`},
		{`{"worker": 1, "rate": 2, "name": "a"}`, `in.jsonl: no line has the numbers "workers" and "rate"`},
		{many, `"name" gives 30 series, and more than 24 cannot be told apart`},
	} {
		_, err := drawn(t, test.text, "--log-y")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80s: error %v, want %q", test.text, err, test.want)
		}
	}
	c, out, files, err := parse([]string{"--x", "a", "--y", "b", "--out", "o.svg", "/no/such"})
	if err != nil {
		t.Fatal(err)
	}
	if err := run(c, out, files); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
	for _, args := range [][]string{{}, {"--x", "a", "--y", "b", "f"}, {"--where", "a", "--x", "a", "--y", "b", "--out", "o", "f"}} {
		if _, _, _, err := parse(args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

// TestContrast: each colour can be told from a white page and from a dark one.
func TestContrast(t *testing.T) {
	light := func(c color.NRGBA) float64 { // as WCAG 2 defines it
		sum := 0.0
		for i, v := range []uint8{c.R, c.G, c.B} {
			part := float64(v) / 255
			if part <= 0.04045 {
				part /= 12.92
			} else {
				part = math.Pow((part+0.055)/1.055, 2.4)
			}
			sum += part * []float64{0.2126, 0.7152, 0.0722}[i]
		}
		return sum
	}
	for _, page := range []color.NRGBA{{0xff, 0xff, 0xff, 0xff}, {0x0d, 0x11, 0x17, 0xff}} {
		for i, c := range append(palette, ink) {
			a, b := light(c), light(page)
			if ratio := (math.Max(a, b) + 0.05) / (math.Min(a, b) + 0.05); ratio < 3.5 {
				t.Errorf("colour %d on %v has a contrast of %.2f", i, page, ratio)
			}
		}
	}
}
