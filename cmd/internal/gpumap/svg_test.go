package gpumap

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestSVG(t *testing.T) {
	whole := func(sm, quota share.PerMille) share.Share {
		return share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: share.MiB}
	}
	two := Slice{Node: "n<1>", Model: "A&B", Shares: []Share{{"ml/a", whole(500, 1000)}, {"ml/b", whole(500, 500)}}}
	for name, c := range map[string]struct {
		list   []Slice
		blocks int // beside one background, one frame for each slice and one key for each share
	}{
		"none":       {nil, 0},
		"empty":      {[]Slice{{Node: "n"}}, 0},
		"slots":      {[]Slice{two}, 2},
		"rectangles": {[]Slice{{Rectangles: true, Shares: two.Shares}}, 2},
		"three":      {[]Slice{two, two, two}, 6},
		"50 ms":      {[]Slice{within(50*time.Millisecond, two)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := SVG(&out, c.list); err != nil {
				t.Fatal(err)
			}
			for _, s := range c.list {
				if want := fmt.Sprintf("window %d ms", cmp.Or(s.Window, 100*time.Millisecond).Milliseconds()); !strings.Contains(out.String(), want) {
					t.Errorf("no %q in %s", want, out.String())
				}
			}
			shares := 0
			for _, s := range c.list {
				shares += len(s.Shares)
			}
			if got, want := rects(t, out.String()), 1+len(c.list)+shares+c.blocks; got != want {
				t.Errorf("%d rectangles, want %d", got, want)
			}
		})
	}
}

// rects counts the rectangles of a document that is sound XML.
func rects(t *testing.T, text string) (n int) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return n
		}
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			n++
		}
	}
}
