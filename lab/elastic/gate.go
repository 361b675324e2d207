package elastic

import (
	"time"

	"github.com/gshare-dev/gshare/lab/device"
)

// gate decides who may launch. The server behind it looks at the clients each 5 ms, and whenever it asks for it.
type gate interface {
	may(k int) bool                                                                // client k has what a launch needs
	launched(now time.Duration, k int, blocks int64)                               // it has launched
	advance(now time.Duration, c []*client, d *device.Device) (next time.Duration) // to be called again then
}

// tick is the period of the servers.
const tick = 5 * time.Millisecond

// open lets everybody launch: the caps of MPS alone share the GPU.
type open struct{}

func (open) may(int) bool                                                           { return true }
func (open) launched(time.Duration, int, int64)                                     {}
func (open) advance(now time.Duration, _ []*client, _ *device.Device) time.Duration { return never }
