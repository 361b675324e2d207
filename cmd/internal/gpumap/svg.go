package gpumap

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/gshare-dev/gshare/cmd/internal/output"
)

// Dimensions of an SVG in pixels.
const (
	panelWidth  = 420
	plotWidth   = 360
	plotHeight  = 160
	plotTop     = 34
	lineHeight  = 15
	panelsAside = 2
	grid        = 1000 // cells of a picture in each direction
)

// svgColours holds the colours of shares in an SVG drawing, in the order of the shares' letters.
var svgColours = []string{"#6baed6", "#fdae6b", "#74c476", "#bcbddc", "#fdd049", "#66c2a5", "#fb9a99", "#b2df8a", "#c7e9c0", "#d9b48f", "#9ecae1", "#e7a3c8"}

// SVG draws the windows of slices side by side as an SVG image, with the same content as Detail.
func SVG(w io.Writer, list []Slice) error {
	var b strings.Builder
	y := 0
	for from := 0; from < len(list); from += panelsAside {
		row := list[from:min(from+panelsAside, len(list))]
		tallest := 0
		for i, s := range row {
			tallest = max(tallest, writeSlice(&b, s, i*panelWidth, y))
		}
		y += tallest
	}
	_, err := fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n%s</svg>\n", panelWidth*panelsAside, max(y, lineHeight), b.String())
	return err
}

// writeSlice draws the window of one slice with its upper left corner at x and y, and returns its height.
func writeSlice(b *strings.Builder, s Slice, x, y int) int {
	s.Shares = sortedShares(s.Shares)
	how, fits := s.plan()
	drawn := how.draw(grid, grid)
	left, top := x+10, y+plotTop
	write := func(at int, text string) {
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%s</text>\n", left, at, html.EscapeString(output.Line(text)))
	}
	write(y+14, strings.TrimSpace(fmt.Sprintf("%s GPU %d  %s", s.Node, s.Index, s.Model))+", "+how.name()+", window "+milliseconds(drawn.window)+" ms")
	write(y+28, s.freeText(1000))
	fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f2f2f2\" stroke=\"#999\"/>\n", left, top, plotWidth, plotHeight)
	for _, piece := range drawn.blocks {
		writeBlock(b, piece, left, top)
	}
	at := top + plotHeight + lineHeight
	if !fits {
		write(at, "these shares do not fit together")
		at += lineHeight
	}
	for i, share := range s.Shares {
		fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", left, at-9, svgColours[i%len(svgColours)])
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%s</text>\n", left+15, at, html.EscapeString(output.Line(share.Pod+"  "+share.Share.String())))
		at += lineHeight
	}
	return at - y + lineHeight
}

// writeBlock draws the block of one share as an SVG rectangle.
func writeBlock(b *strings.Builder, p block, left, top int) {
	fmt.Fprintf(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" stroke=\"white\"/>\n",
		float64(left)+float64(p.left)*plotWidth/grid, float64(top)+float64(grid-p.top)*plotHeight/grid,
		float64(p.right-p.left)*plotWidth/grid, float64(p.top-p.bottom)*plotHeight/grid, svgColours[p.who%len(svgColours)])
}
