package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sample() *Chart {
	return &Chart{Title: "Speed & <cost>", X: "load", Y: "GPUs", Lines: []Line{
		{Name: "first", Points: []Point{{0, 0}, {50, 40}, {100, 90}}}, {Name: "second", Points: []Point{{0, 0}, {100, 80}}},
	}}
}

func draw(t *testing.T, c *Chart, name string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := c.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := os.ReadDir(filepath.Dir(file)); err != nil || len(rest) != 1 {
		t.Errorf("%d files left behind, %v", len(rest), err)
	}
	return text
}

func TestCheck(t *testing.T) {
	for file, want := range map[string]bool{
		"a.svg": true, "a.PNG": true, "": true, "a.pdf": false, "svg": false, "a.svg.gz": false, "/nowhere/a.svg": false, "chart.go/a.svg": false,
	} {
		t.Run(file, func(t *testing.T) {
			if err := Check(file); (err == nil) != want {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSVG(t *testing.T) {
	text := draw(t, sample(), "a.svg")
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"first", "second", "load", "GPUs", "Speed &amp; &lt;cost&gt;"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the picture", want)
		}
	}
}

func TestPNG(t *testing.T) {
	c := sample()
	c.Bars = []Bar{{"a", 3, 0.5}, {"b", 4, 0}}
	picture, err := png.Decode(bytes.NewReader(draw(t, c, "a.png")))
	if err != nil {
		t.Fatal(err)
	}
	if size := picture.Bounds().Size(); size.X < 400 || size.Y < 200 {
		t.Errorf("a picture of %v", size)
	}
}

// The picture shows the data: another line or another whisker makes another picture.
func TestPictureShowsTheData(t *testing.T) {
	plain, other := sample(), sample()
	other.Lines[1].Points[1].Y = 70
	if bytes.Equal(draw(t, plain, "a.svg"), draw(t, other, "a.svg")) {
		t.Error("another line, the same picture")
	}
	plain, other = &Chart{Bars: []Bar{{"a", 3, 0}}}, &Chart{Bars: []Bar{{"a", 3, 1}}}
	if bytes.Equal(draw(t, plain, "a.svg"), draw(t, other, "a.svg")) {
		t.Error("another deviation, the same picture")
	}
}

func TestWriteFileIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		chart *Chart
		file  string
	}{
		"unknown format": {sample(), filepath.Join(dir, "a.pdf")},
		"no folder":      {sample(), filepath.Join(dir, "none", "a.svg")},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.chart.WriteFile(c.file); err == nil {
				t.Error("no error")
			}
		})
	}
	if rest, err := os.ReadDir(dir); err != nil || len(rest) > 0 {
		t.Errorf("%d files left behind, %v", len(rest), err)
	}
}
