package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
)

// writeChart writes a chart of the cheapest mode for one application alone, by its SLO and request rate. Dots show the planned
// applications.
func (p *planFlags) writeChart() error {
	f, err := p.computeFrontier()
	if err != nil {
		return err
	}
	picture := plot.New()
	picture.Title.Text = "Cheapest mode of " + p.model
	picture.X.Label.Text, picture.Y.Label.Text = "SLO, seconds", "requests per second"
	picture.X.Scale, picture.Y.Scale = plot.LogScale{}, plot.LogScale{}
	picture.X.Tick.Marker, picture.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	picture.Legend.Top = true
	picture.Add(f)
	for _, mode := range planning.Modes() {
		if f.contains(mode) {
			picture.Legend.Add(string(mode), swatch{colorOf(mode)})
		}
	}
	dots, err := plotter.NewScatter(p.applicationPoints())
	if err != nil {
		return err
	}
	picture.Add(dots)
	picture.Legend.Add("applications", dots)
	return savePlot(picture, p.plot)
}

// savePlot writes a plot to a file, in the format given by the file's extension.
func savePlot(picture *plot.Plot, path string) error {
	format := strings.ToLower(strings.TrimPrefix(filepath.Ext(path), "."))
	drawn, err := picture.WriterTo(24*vg.Centimeter, 14*vg.Centimeter, format)
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	var text bytes.Buffer
	if _, err := drawn.WriteTo(&text); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	if err := atomicfile.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}

// frontier holds the cheapest mode for each cell of a grid over SLO and request rate, with logarithmic steps on both axes.
type frontier struct {
	slos, rates []float64 // the cells' middles
	modes       [][]planning.Mode
}

// cells is the number of grid cells on each axis of a frontier chart.
const cells = 80

// applicationPoints returns the points of the planned applications that use the charted model: their SLO and request rate.
func (p *planFlags) applicationPoints() plotter.XYs {
	var dots plotter.XYs
	for _, a := range p.input.Applications {
		if a.Model == p.model {
			dots = append(dots, plotter.XY{X: float64(a.SLO), Y: a.Rate})
		}
	}
	return dots
}

// computeFrontier computes the cheapest mode for SLOs and request rates around those of the applications that use the model.
func (p *planFlags) computeFrontier() (*frontier, error) {
	lowX, highX, lowY, highY := plotter.XYRange(p.applicationPoints())
	f := &frontier{
		slos:  logSteps(lowX/4, min(highX*4, planning.MaxSLO)),
		rates: logSteps(max(lowY/10, planning.MinRate), min(highY*10, planning.MaxRate)),
	}
	var slos []profile.Seconds
	for _, s := range f.slos {
		slos = append(slos, profile.Seconds(s))
	}
	groups, err := planning.Frontier(p.input, p.model, slos, f.rates)
	for _, row := range groups {
		var modes []planning.Mode
		for _, g := range row {
			modes = append(modes, g.Config.Mode)
		}
		f.modes = append(f.modes, modes)
	}
	return f, err
}

// logSteps returns a number of values from low to high, each larger than the one before by the same factor.
func logSteps(low, high float64) []float64 {
	all := make([]float64, cells)
	for i := range all {
		all[i] = max(low, min(high, low*math.Pow(high/low, float64(i)/(cells-1)))) // rounding errors stay within the bounds
	}
	return all
}

// contains reports whether the mode is the cheapest in any cell of the grid.
func (f *frontier) contains(mode planning.Mode) bool {
	for _, row := range f.modes {
		for _, m := range row {
			if m == mode {
				return true
			}
		}
	}
	return false
}

// Plot implements plot.Plotter: it fills each cell with the colour of its cheapest mode.
func (f *frontier) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, row := range f.modes {
		for j, mode := range row {
			if mode == "" {
				continue // no mode is fast enough
			}
			left, right := cellBorders(f.slos, i)
			low, high := cellBorders(f.rates, j)
			c.FillPolygon(colorOf(mode), []vg.Point{{X: x(left), Y: y(low)}, {X: x(right), Y: y(low)}, {X: x(right), Y: y(high)}, {X: x(left), Y: y(high)}})
		}
	}
}

// DataRange implements plot.DataRanger: it returns the SLOs and rates that the grid spans.
func (f *frontier) DataRange() (lowX, highX, lowY, highY float64) {
	lowX, _ = cellBorders(f.slos, 0)
	_, highX = cellBorders(f.slos, cells-1)
	lowY, _ = cellBorders(f.rates, 0)
	_, highY = cellBorders(f.rates, cells-1)
	return lowX, highX, lowY, highY
}

// cellBorders returns the lower and upper border of a grid cell on one axis, half a logarithmic step below and above its centre.
func cellBorders(middles []float64, i int) (low, high float64) {
	half := math.Sqrt(middles[1] / middles[0])
	return middles[i] / half, middles[i] * half
}

func colorOf(mode planning.Mode) color.Color {
	for i, m := range planning.Modes() {
		if m == mode {
			return plotutil.SoftColors[i]
		}
	}
	return color.White
}

// swatch is a filled rectangle that shows a mode's colour in the legend.
type swatch struct{ color color.Color }

// Thumbnail implements plot.Thumbnailer.
func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.color, []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Min.X, Y: c.Max.Y}})
}
