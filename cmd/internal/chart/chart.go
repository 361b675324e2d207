// Package chart draws lines and bars into SVG or PNG files.
package chart

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
)

// Chart is a plot of lines, bars or both, to be written to a file.
type Chart struct {
	Title, X, Y string
	Lines       []Line
	Bars        []Bar
}

// Line is a named line of a chart through points sorted by X.
type Line struct {
	Name   string
	Points []Point
}

// Point is a point of a chart, in the units of its axes.
type Point struct{ X, Y float64 }

// Bar is a bar of a chart. A standard deviation other than zero is drawn as a whisker.
type Bar struct {
	Name       string
	Value, Dev float64
}

const (
	width  = 24 * vg.Centimeter
	height = 14 * vg.Centimeter
)

// Check returns an error if a chart cannot be written to a file, before the work whose result it shows. An empty name is that of no chart.
func Check(file string) error {
	switch {
	case file == "":
		return nil
	case format(file) == "":
		return fmt.Errorf("%s: want a file that ends in .svg or .png", file)
	}
	return output.CheckFile(file)
}

func format(file string) string {
	switch ext := strings.ToLower(filepath.Ext(file)); ext {
	case ".svg", ".png":
		return ext[1:]
	}
	return ""
}

// WriteFile writes the chart to a file, in the format given by the file's extension. It replaces an existing file atomically.
func (c *Chart) WriteFile(file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Legend.Top, p.Legend.Left = true, len(c.Bars) == 0 // the interesting end of lines is on the right
	if err := c.addBars(p); err != nil {
		return err
	}
	if err := c.addLines(p); err != nil {
		return err
	}
	picture, err := p.WriterTo(width, height, format(file))
	if err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	var text bytes.Buffer
	if _, err := picture.WriteTo(&text); err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	return atomicfile.WriteFile(file, text.Bytes(), 0o644)
}

func (c *Chart) addLines(p *plot.Plot) error {
	for i, l := range c.Lines {
		points := make(plotter.XYs, len(l.Points))
		for j, at := range l.Points {
			points[j].X, points[j].Y = at.X, at.Y
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("line %s: %w", l.Name, err)
		}
		line.Color, line.Dashes = plotutil.Color(i), plotutil.Dashes(i/len(plotutil.SoftColors))
		line.Width = vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(l.Name, line)
	}
	return nil
}

func (c *Chart) addBars(p *plot.Plot) error {
	if len(c.Bars) == 0 {
		return nil
	}
	values := make(plotter.Values, len(c.Bars))
	names := make([]string, len(c.Bars))
	for i, b := range c.Bars {
		values[i], names[i] = b.Value, b.Name
	}
	bars, err := plotter.NewBarChart(values, vg.Points(min(40, 480/float64(len(values)))))
	if err != nil {
		return fmt.Errorf("bars: %w", err)
	}
	bars.Color = plotutil.Color(2)
	p.Add(bars)
	p.NominalX(names...)
	return c.addWhiskers(p)
}

// whiskers implements the interfaces of plotter.NewYErrorBars for the standard deviations of bars.
type whiskers []Bar

func (w whiskers) Len() int                         { return len(w) }
func (w whiskers) XY(i int) (x, y float64)          { return float64(i), w[i].Value }
func (w whiskers) YError(i int) (low, high float64) { return w[i].Dev, w[i].Dev }

func (c *Chart) addWhiskers(p *plot.Plot) error {
	bars, err := plotter.NewYErrorBars(whiskers(c.Bars))
	if err != nil {
		return fmt.Errorf("deviations: %w", err)
	}
	p.Add(bars)
	return nil
}
