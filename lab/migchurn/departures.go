package migchurn

import "github.com/gshare-dev/gshare/vgpu/mig"

// departure is the end of a running instance.
type departure struct {
	at      float64
	gpu     int
	made    mig.Instance
	compute int // slices that were asked for
}

// departures is a heap, the earliest end first (container/heap).
type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any)        { *d = append(*d, x.(departure)) }
func (d *departures) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	*d = (*d)[:last]
	return x
}
