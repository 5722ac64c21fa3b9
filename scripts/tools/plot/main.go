// Command plot draws a line chart of JSON lines as SVG.
//
//	plot --x FIELD --y FIELD --out FILE.svg [options] FILE...
//
// Each line of the files is an object. Its numbers --x and --y are a point of the series that
// --series names; a line without one of them, or with null, has no point. Points of a series
// with the same x are drawn as one, at their median. Equal input gives equal bytes.
//
// The chart has no background, and its colours can be told from a white page and from a dark one.
//
// It draws by gonum.org/v1/plot, whose axes can be logarithmic and whose SVG is made without a
// browser or cgo; other charting libraries for Go lack one of these, or are kept no more.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	c, out, files, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(2)
	}
	if err := run(c, out, files); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

// chart is what is drawn of which lines.
type chart struct {
	x, y, series   string // fields
	where          filters
	title          string
	xLabel, yLabel string
	xScale, yScale float64 // values are multiplied by these
	logX, logY     bool
}

// filters have, for each field, the values of which a line must have one.
type filters map[string][]string

func (f filters) String() string { return "" }

// Set takes in FIELD=VALUE,VALUE.
func (f filters) Set(text string) error {
	field, values, ok := strings.Cut(text, "=")
	if !ok || field == "" || values == "" {
		return fmt.Errorf("it has the form FIELD=VALUE,VALUE")
	}
	f[field] = append(f[field], strings.Split(values, ",")...)
	return nil
}

// parse understands the arguments.
func parse(args []string) (c chart, out string, files []string, err error) {
	c.where = filters{}
	flags := flag.NewFlagSet("plot", flag.ContinueOnError)
	flags.StringVar(&out, "out", "", "the SVG `FILE` to write")
	flags.StringVar(&c.x, "x", "", "the `FIELD` across")
	flags.StringVar(&c.y, "y", "", "the `FIELD` upwards")
	flags.StringVar(&c.series, "series", "", "the `FIELD` that names the line of a point")
	flags.Var(c.where, "where", "only lines with `FIELD=VALUE,VALUE`; may be repeated")
	flags.StringVar(&c.title, "title", "", "the `TEXT` above")
	flags.StringVar(&c.xLabel, "x-label", "", "the `TEXT` at the axis across, with the unit (default: the field)")
	flags.StringVar(&c.yLabel, "y-label", "", "the `TEXT` at the axis upwards, with the unit (default: the field)")
	flags.Float64Var(&c.xScale, "x-scale", 1, "multiply x by `N`")
	flags.Float64Var(&c.yScale, "y-scale", 1, "multiply y by `N`")
	flags.BoolVar(&c.logX, "log-x", false, "the axis across is logarithmic")
	flags.BoolVar(&c.logY, "log-y", false, "the axis upwards is logarithmic")
	if err = flags.Parse(args); err != nil {
		return c, "", nil, err
	}
	if out == "" || c.x == "" || c.y == "" || flags.NArg() == 0 {
		return c, "", nil, fmt.Errorf("--x, --y, --out and at least one file are needed")
	}
	if c.xLabel == "" {
		c.xLabel = c.x
	}
	if c.yLabel == "" {
		c.yLabel = c.y
	}
	return c, out, flags.Args(), nil
}

// run draws c of these files into the file out, which is replaced only when that succeeds.
func run(c chart, out string, files []string) error {
	var all []*line
	for _, name := range files {
		if err := c.readFile(name, &all); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%s: no line has the numbers %q and %q", strings.Join(files, ", "), c.x, c.y)
	}
	svg, err := c.draw(all)
	if err != nil {
		return err
	}
	made, err := os.CreateTemp(filepath.Dir(out), ".plot-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(made.Name()) }() // it is gone if it was renamed
	_, err = made.Write(svg)
	if err == nil {
		err = made.Chmod(0o644)
	}
	if cerr := made.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(made.Name(), out)
	}
	return err
}

// line is a series.
type line struct {
	name string
	at   map[float64][]float64 // the values at each x
}

// points are in the order of x, each with the median of its values.
func (l *line) points() (xs, ys []float64) {
	xs = slices.Sorted(maps.Keys(l.at))
	for _, x := range xs {
		v := slices.Sorted(slices.Values(l.at[x]))
		ys = append(ys, (v[(len(v)-1)/2]+v[len(v)/2])/2)
	}
	return xs, ys
}

func (c *chart) readFile(name string, all *[]*line) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return c.read(name, f, all)
}

// longest is that of an input line, in bytes.
const longest = 16 << 20

// read adds the points of a file to the lines of the chart. Errors name the file and the line.
func (c *chart) read(name string, r io.Reader, all *[]*line) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longest)
	number := 1
	for ; lines.Scan(); number++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		if err := c.add(lines.Bytes(), all); err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, number, err)
	}
	return nil
}

func (c *chart) add(text []byte, all *[]*line) error {
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	for field, values := range c.where {
		if !slices.Contains(values, word(object[field])) {
			return nil
		}
	}
	x, hasX, err := value(object, c.x, c.xScale, c.logX)
	if err != nil {
		return err
	}
	y, hasY, err := value(object, c.y, c.yScale, c.logY)
	if err != nil || !hasX || !hasY {
		return err
	}
	name := ""
	if c.series != "" {
		if name = word(object[c.series]); name == "" {
			return fmt.Errorf("%q, which names its series, is missing", c.series)
		}
	}
	i := slices.IndexFunc(*all, func(l *line) bool { return l.name == name })
	if i < 0 {
		i = len(*all)
		*all = append(*all, &line{name: name, at: map[float64][]float64{}})
	}
	l := (*all)[i]
	l.at[x] = append(l.at[x], y)
	return nil
}

// value is the number of a field; there is none if it is missing or null.
func value(object map[string]any, field string, scale float64, log bool) (n float64, ok bool, err error) {
	switch v := object[field].(type) {
	case nil:
		return 0, false, nil
	case float64:
		if n = v * scale; log && n <= 0 {
			return 0, false, fmt.Errorf("%q is %g, which has no place on a logarithmic axis", field, v)
		}
		return n, true, nil
	default:
		return 0, false, fmt.Errorf("%q is %v, no number", field, v)
	}
}

// word is a value as a name; empty: there is none.
func word(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}
