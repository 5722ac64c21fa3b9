package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width, height = 18 * vg.Centimeter, 10 * vg.Centimeter
	margin        = 6                   // points around all
	besides       = 4.2 * vg.Centimeter // where the names of series are
)

// ink is that of text and axes, faint that of the grid. Like the palette they have a contrast
// to white and to a dark page (TestContrast).
var (
	ink     = color.NRGBA{0x7a, 0x7a, 0x7a, 0xff}
	faint   = color.NRGBA{0x7a, 0x7a, 0x7a, 0x40}
	palette = []color.NRGBA{
		{0x00, 0x78, 0xc8, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x96, 0x6c, 0xff}, {0xc0, 0x5c, 0x98, 0xff},
		{0x8a, 0x63, 0xd2, 0xff}, {0x9a, 0x70, 0x1c, 0xff}, {0xd6, 0x3a, 0x4e, 0xff}, {0x4f, 0x83, 0x9a, 0xff},
	}
	dashes = [][]vg.Length{nil, {vg.Points(6), vg.Points(3)}, {vg.Points(2), vg.Points(3)}}
)

// draw makes the SVG of the lines.
func (c *chart) draw(all []*line) ([]byte, error) {
	if most := len(palette) * len(dashes); len(all) > most {
		return nil, fmt.Errorf("%q gives %d series, and more than %d cannot be told apart: choose some by --where", c.series, len(all), most)
	}
	p, legend := plot.New(), plot.NewLegend()
	p.BackgroundColor = nil
	p.Title.Text, p.Title.TextStyle.Color, p.Title.Padding = c.title, ink, vg.Points(8)
	for _, a := range []struct {
		axis  *plot.Axis
		label string
		log   bool
	}{{&p.X, c.xLabel, c.logX}, {&p.Y, c.yLabel, c.logY}} {
		a.axis.Label.Text, a.axis.Label.TextStyle.Color = a.label, ink
		a.axis.Color, a.axis.Tick.Color, a.axis.Tick.Label.Color = ink, ink, ink
		a.axis.Tick.Marker = plot.TickerFunc(linear)
		if a.log {
			a.axis.Scale, a.axis.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logarithmic)
		}
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	legend.TextStyle.Color, legend.Top, legend.Left, legend.Padding = ink, true, true, vg.Points(3)
	for i, l := range all {
		xs, ys := l.points()
		points := make(plotter.XYs, len(xs))
		for j := range xs {
			points[j] = plotter.XY{X: xs[j], Y: ys[j]}
		}
		drawn, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("series %q: %w", l.name, err)
		}
		drawn.Color, drawn.Width, drawn.Dashes = palette[i%len(palette)], vg.Points(1.5), dashes[i/len(palette)]
		marks.Color, marks.Shape, marks.Radius = drawn.Color, draw.CircleGlyph{}, vg.Points(2)
		p.Add(drawn)
		if len(points) <= 40 { // else they hide the line
			p.Add(marks)
		}
		if l.name != "" {
			legend.Add(l.name, drawn)
		}
	}
	p.X.Min, p.X.Max = reach(p.X.Min, p.X.Max, c.logX, false)
	p.Y.Min, p.Y.Max = reach(p.Y.Min, p.Y.Max, c.logY, true)
	canvas := vgsvg.New(width, height)
	whole := draw.Crop(draw.New(canvas), margin, -margin, margin, -margin)
	if c.series == "" {
		p.Draw(draw.Crop(whole, 0, -vg.Points(12), 0, 0))
	} else {
		p.Draw(draw.Crop(whole, 0, -besides, 0, 0))
		legend.Draw(draw.Crop(whole, width-2*margin-besides+vg.Points(12), 0, 0, -vg.Points(30)))
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	return svg.Bytes(), nil
}

// reach is from where to where an axis goes, of the least and the greatest value on it. From
// zero, if it is linear and that is wanted: else small differences would look large.
func reach(least, greatest float64, log, zero bool) (from, to float64) {
	switch {
	case log && least == greatest:
		return least / 2, greatest * 2
	case log:
		return least, greatest
	case zero:
		least, greatest = math.Min(least, 0), math.Max(greatest, 0)
	}
	if least == greatest {
		return least, greatest + 1
	}
	return least, greatest
}

// linear puts about six ticks on an axis, at round values.
func linear(from, to float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10((to-from)/5)))
	for _, factor := range []float64{5, 2} {
		if (to-from)/(step*factor) >= 4 {
			step *= factor
			break
		}
	}
	for i := math.Ceil(from / step); i*step <= to; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: short(i * step)})
	}
	return ticks
}

// logarithmic puts a tick at 1, 2, …, 9 times each power of ten. Powers have labels; on short
// axes 2 and 5 times these have some, too.
func logarithmic(from, to float64) (ticks []plot.Tick) {
	few := math.Log10(to/from) < 2.5
	for power := math.Floor(math.Log10(from)); math.Pow(10, power) <= to; power++ {
		for digit := 1.0; digit < 10; digit++ {
			tick := plot.Tick{Value: digit * math.Pow(10, power)}
			if tick.Value < from*(1-1e-9) || tick.Value > to*(1+1e-9) {
				continue
			}
			if digit == 1 || few && (digit == 2 || digit == 5) {
				tick.Label = short(tick.Value)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// short is a number as at a tick: 20, 0.05, 10k, 1.5M.
func short(v float64) string {
	unit := ""
	for _, u := range []struct {
		of   float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if math.Abs(v) >= u.of*(1-1e-9) {
			if unit = u.name; unit == "k" {
				u.of = 1e3
			}
			v /= u.of
			break
		}
	}
	return strconv.FormatFloat(v, 'g', 6, 64) + unit
}
