// Package gpumap draws the GPUs of a cluster in a terminal.
//
// [Overview] shows a whole cluster, one character for each GPU. [Detail] shows one GPU as a picture of a window: time
// runs to the right, SMs go up, and every share is a block with its own colour and letter. [Interesting] selects the GPUs that show
// the most in such a picture.
//
// The output depends on the slices only, not on the order of shares or on the machine. Without colours, adjacent blocks differ in their
// shade, and every block has a letter.
package gpumap

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Slice is a slice to be drawn, with the shares that are placed on it.
type Slice struct {
	Node        string
	Index       int // of the GPU on its node
	Model       string
	Rectangles  bool           // shares are packed as rectangles, otherwise by a slot table
	Window      time.Duration  // in which the node gives turns to the shares; 0 is 100 ms
	Reserve     share.PerMille // part of each window for switching turns
	MemoryTotal share.Bytes
	Shares      []Share
}

// Share is a share to be drawn, with the name of its pod.
type Share struct {
	Pod   string
	Share share.Share
}

// Options holds the size of the output and whether it is coloured.
type Options struct {
	Width   int  // columns of the terminal; 0 is 80
	Color   bool // use colours; otherwise write plain text
	MaxRows int  // maximum number of lines, beyond which GPUs are summarised; 0 is unlimited
}

const (
	defaultWidth  = 80
	defaultWindow = 100 * time.Millisecond
	noLimit       = 1 << 30
)

// withDefaults returns the options with zero values replaced by the defaults.
func (o Options) withDefaults() Options {
	if o.Width <= 0 {
		o.Width = defaultWidth
	}
	if o.MaxRows <= 0 {
		o.MaxRows = noLimit
	}
	return o
}
