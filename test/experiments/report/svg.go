package report

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Of a picture, in pixels.
const (
	width, height         = 860.0, 420.0
	left, right           = 92.0, 270.0 // the names of lines are on the right
	top, bottom           = 40.0, 54.0
	plotWidth, plotHeight = width - left - right, height - top - bottom
)

// colours can be told apart by colour-blind people, too.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a6a00", "#56b4e9", "#000000", "#e69f00"}

// SVG draws the chart.
func (c Chart) SVG() string {
	x, y := c.scale(0), c.scale(1)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="white"/>`+"\n", width, height)
	text := func(px, py float64, anchor, fill, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", px, py, anchor, fill, html.EscapeString(s))
	}
	line := func(x1, y1, x2, y2 float64, colour string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, colour)
	}
	fmt.Fprintf(&b, `<text x="%g" y="22" font-size="14" font-weight="bold">%s</text>`+"\n", left, html.EscapeString(c.Title))
	for _, v := range x.ticks() {
		px := left + plotWidth*x.at(v)
		line(px, top, px, top+plotHeight, "#e4e4e4")
		text(px, top+plotHeight+18, "middle", "#333", tick(v))
	}
	for _, v := range y.ticks() {
		py := top + plotHeight*(1-y.at(v))
		line(left, py, left+plotWidth, py, "#e4e4e4")
		text(left-6, py+4, "end", "#333", tick(v))
	}
	line(left, top+plotHeight, left+plotWidth, top+plotHeight, "#333")
	line(left, top, left, top+plotHeight, "#333")
	text(left+plotWidth/2, height-12, "middle", "#333", c.X.Label)
	fmt.Fprintf(&b, `<text transform="translate(16 %.1f) rotate(-90)" text-anchor="middle" fill="#333">%s</text>`+"\n", top+plotHeight/2, html.EscapeString(c.Y.Label))
	for i, s := range c.Series {
		colour, dash := colours[i%len(colours)], ""
		if s.Dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		var path strings.Builder
		last, begun := 0.0, false
		for _, p := range s.Points {
			if !x.has(p[0]) || !y.has(p[1]) {
				continue
			}
			px, py := left+plotWidth*x.at(p[0]), top+plotHeight*(1-y.at(p[1]))
			switch {
			case !begun:
				fmt.Fprintf(&path, "M%.1f %.1f", px, py)
			case s.Steps:
				fmt.Fprintf(&path, "L%.1f %.1fL%.1f %.1f", px, last, px, py)
			default:
				fmt.Fprintf(&path, "L%.1f %.1f", px, py)
			}
			last, begun = py, true
			if !s.Dashed && !s.Steps {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", px, py, colour)
			}
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", path.String(), colour, dash)
		py := top + 8 + float64(i)*20
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2"%s/>`+"\n", left+plotWidth+12, py, left+plotWidth+34, py, colour, dash)
		text(left+plotWidth+40, py+4, "start", "#333", s.Name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// scale maps an axis to 0 to 1.
type scale struct {
	log       bool
	low, high float64
}

func (c Chart) scale(axis int) scale {
	s := scale{log: [2]Axis{c.X, c.Y}[axis].Log}
	first := true
	for _, line := range c.Series {
		for _, p := range line.Points {
			v := p[axis]
			if math.IsNaN(v) || math.IsInf(v, 0) || s.log && v <= 0 {
				continue
			}
			if first {
				s.low, s.high, first = v, v, false
			}
			s.low, s.high = min(s.low, v), max(s.high, v)
		}
	}
	switch {
	case first:
		s.low, s.high = 1, 10
	case s.log:
		s.low, s.high = math.Pow(10, math.Floor(math.Log10(s.low)+1e-9)), math.Pow(10, math.Ceil(math.Log10(s.high)-1e-9))
		if s.low == s.high {
			s.high *= 10
		}
	case axis == 0 && s.low > s.high/2: // clock rates and the like do not begin at 0
	default:
		s.low = min(0, s.low)
	}
	if s.low == s.high {
		s.high++
	}
	return s
}

func (s scale) has(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!s.log || v > 0)
}

func (s scale) at(v float64) float64 {
	if s.log {
		return math.Log(v/s.low) / math.Log(s.high/s.low)
	}
	return (v - s.low) / (s.high - s.low)
}

func (s scale) ticks() (all []float64) {
	if s.log {
		for v := s.low; v < s.high*1.01; v *= 10 {
			all = append(all, v)
		}
		return all
	}
	step := math.Pow(10, math.Floor(math.Log10((s.high-s.low)/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (s.high-s.low)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	for v := math.Ceil(s.low/step-1e-9) * step; v <= s.high+step/1e6; v += step {
		all = append(all, math.Round(v/step)*step)
	}
	return all
}

func tick(v float64) string {
	whole, rest, broken := strings.Cut(strconv.FormatFloat(math.Round(v*1e6)/1e6+0, 'f', -1, 64), ".") // no -0
	if broken {
		rest = "." + rest
	}
	return thousands(whole) + rest
}
