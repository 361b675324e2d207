package main

import (
	"time"

	"github.com/gshare-dev/gshare/cmd/internal/mapping"
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// mapped is a slice as map writes it for programs.
type mapped struct {
	Node   string   `json:"node"`
	Slice  string   `json:"slice"`
	Model  string   `json:"model"`
	Shares []held   `json:"shares,omitempty"`
	Turns  []turn   `json:"turns,omitempty"` // of a slot table over a window of 100 ms
	Boxes  []placed `json:"boxes,omitempty"` // where shares were packed as rectangles
	Fits   bool     `json:"fits"`
}

// held is a share and its container.
type held struct {
	Container          string `json:"container"` // namespace/pod/container
	SMPerMille         int64  `json:"smPerMille"`
	SMLimitPerMille    int64  `json:"smLimitPerMille"`
	QuotaPerMille      int64  `json:"quotaPerMille"`
	QuotaLimitPerMille int64  `json:"quotaLimitPerMille"`
	MemoryMiB          int64  `json:"memoryMiB"`
}

// turn is the containers that run together, and for how long.
type turn struct {
	Microseconds int64    `json:"microseconds"`
	Containers   []string `json:"containers"`
}

// placed is a box: per mille of the window to the right, per mille of the SMs up.
type placed struct {
	Container string `json:"container"`
	Time      int64  `json:"timePerMille"`
	SM        int64  `json:"smPerMille"`
	Width     int64  `json:"widthPerMille"`
	Height    int64  `json:"heightPerMille"`
}

func heldOf(container string, s share.Share) held {
	return held{container, int64(s.SMRequest), int64(s.SMLimit), int64(s.QuotaRequest), int64(s.QuotaLimit), int64(s.Memory / share.MiB)}
}

func mapOf(list []mapping.Slice) (out []mapped) {
	for _, d := range list {
		m := mapped{Node: d.Node, Slice: d.ID, Model: d.Model}
		for _, s := range d.Shares {
			m.Shares = append(m.Shares, heldOf(s.Pod, s.Share))
		}
		if d.Rectangles {
			m.boxes(d)
		} else {
			m.turns(d)
		}
		out = append(out, m)
	}
	return out
}

func (m *mapped) turns(d mapping.Slice) {
	var items []slot.Item
	for _, s := range d.Shares {
		items = append(items, slot.Item{SM: s.Share.SMRequest, Quota: s.Share.QuotaRequest})
	}
	table, ok := slot.Solve(items, 100*time.Millisecond, d.Reserve)
	m.Fits = ok
	for _, t := range table.Turns {
		out := turn{Microseconds: t.Duration.Microseconds()}
		for _, i := range t.Members {
			out.Containers = append(out.Containers, d.Shares[i].Pod)
		}
		m.Turns = append(m.Turns, out)
	}
}

func (m *mapped) boxes(d mapping.Slice) {
	var boxes []rectangle.Box
	for _, s := range d.Shares {
		boxes = append(boxes, rectangle.BoxOf(s.Share))
	}
	rects, ok := rectangle.Arrange(boxes)
	m.Fits = ok
	for i, r := range rects {
		m.Boxes = append(m.Boxes, placed{d.Shares[i].Pod, int64(r.X), int64(r.Y), int64(r.W), int64(r.H)})
	}
}
