// Package gpumap draws the GPUs of a cluster in a terminal.
//
// [Overview] shows a whole cluster, one character for each GPU. [Detail] shows one GPU as a picture of a window: time
// runs to the right, SMs go up, and every share is a block of its own colour and letter. [Interesting] finds the GPUs
// that are worth such a picture.
//
// What is drawn follows from the slices alone, never from the order of shares or from the machine. Without colour the
// pictures lose nothing but their beauty: blocks that touch differ in their shade and carry a letter.
package gpumap

import "github.com/gshare-dev/gshare/vgpu/share"

// Slice is one GPU and what was placed on it.
type Slice struct {
	Node        string
	Index       int // of the GPU on its node
	Model       string
	Rectangles  bool           // its shares are arranged as boxes; otherwise they take turns by a slot table
	Reserve     share.PerMille // of every window, for switching between turns
	MemoryTotal share.Bytes
	Shares      []Share
}

// Share is what a pod has of a slice.
type Share struct {
	Pod   string
	Share share.Share
}

// Options say how to draw.
type Options struct {
	Width   int  // columns of the terminal; 0 is 80
	Color   bool // with colours; false writes plain text
	MaxRows int  // lines at most, the rest is summarised; 0 is as many as it takes
}

const (
	defaultWidth = 80
	noLimit      = 1 << 30
)

// filled gives the options their defaults.
func (o Options) filled() Options {
	if o.Width <= 0 {
		o.Width = defaultWidth
	}
	if o.MaxRows <= 0 {
		o.MaxRows = noLimit
	}
	return o
}
