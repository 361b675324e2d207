package main

import (
	"github.com/gshare-dev/gshare/cmd/internal/mapping"
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// sliceView is the JSON representation of a slice in gshare map: its shares and how they share the window.
type sliceView struct {
	Node   string      `json:"node"`
	Slice  string      `json:"slice"`
	Model  string      `json:"model"`
	Shares []shareView `json:"shares,omitempty"`
	Window int64       `json:"windowMicroseconds"`
	Turns  []turn      `json:"turns,omitempty"` // of the slot table, which is repeated in each window
	Boxes  []box       `json:"boxes,omitempty"` // of shares that are packed as rectangles
	Fits   bool        `json:"fits"`
}

// shareView is the JSON representation of a share in gshare map and gshare tree.
type shareView struct {
	Container          string `json:"container"` // namespace/pod/container
	SMPerMille         int64  `json:"smPerMille"`
	SMLimitPerMille    int64  `json:"smLimitPerMille"`
	QuotaPerMille      int64  `json:"quotaPerMille"`
	QuotaLimitPerMille int64  `json:"quotaLimitPerMille"`
	MemoryMiB          int64  `json:"memoryMiB"`
}

// turn is the JSON representation of one turn of a slot table: the containers that run together, and for how long.
type turn struct {
	Microseconds int64    `json:"microseconds"`
	Containers   []string `json:"containers"`
}

// box is the JSON representation of a share packed as a rectangle. X and width are in per mille of the window, Y and height in per mille of
// the SMs.
type box struct {
	Container string `json:"container"`
	Time      int64  `json:"timePerMille"`
	SM        int64  `json:"smPerMille"`
	Width     int64  `json:"widthPerMille"`
	Height    int64  `json:"heightPerMille"`
}

func newShareView(container string, s share.Share) shareView {
	return shareView{container, int64(s.SMRequest), int64(s.SMLimit), int64(s.QuotaRequest), int64(s.QuotaLimit), int64(s.Memory / share.MiB)}
}

// sliceViews converts slices to JSON, each with the turns of its slot table or the rectangles of its shares.
func sliceViews(list []mapping.Slice) (out []sliceView) {
	for _, d := range list {
		m := sliceView{Node: d.Node, Slice: d.ID, Model: d.Model, Window: d.Window.Microseconds()}
		for _, s := range d.Shares {
			m.Shares = append(m.Shares, newShareView(s.Pod, s.Share))
		}
		if d.Rectangles {
			m.addBoxes(d)
		} else {
			m.addTurns(d)
		}
		out = append(out, m)
	}
	return out
}

// addTurns computes the slot table of the slice's shares and adds its turns.
func (m *sliceView) addTurns(d mapping.Slice) {
	var items []slot.Item
	for _, s := range d.Shares {
		items = append(items, slot.Item{SM: s.Share.SMRequest, Quota: s.Share.QuotaRequest})
	}
	table, ok := slot.Solve(items, d.Window, d.Reserve)
	m.Fits = ok
	for _, t := range table.Turns {
		out := turn{Microseconds: t.Duration.Microseconds()}
		for _, i := range t.Members {
			out.Containers = append(out.Containers, d.Shares[i].Pod)
		}
		m.Turns = append(m.Turns, out)
	}
}

// addBoxes packs the slice's shares as rectangles and adds these.
func (m *sliceView) addBoxes(d mapping.Slice) {
	var boxes []rectangle.Box
	for _, s := range d.Shares {
		boxes = append(boxes, rectangle.BoxOf(s.Share))
	}
	rects, ok := rectangle.Arrange(boxes)
	m.Fits = ok
	for i, r := range rects {
		m.Boxes = append(m.Boxes, box{d.Shares[i].Pod, int64(r.X), int64(r.Y), int64(r.W), int64(r.H)})
	}
}
