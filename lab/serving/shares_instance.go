package serving

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline/residency"
	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// instance is one copy of a function on a GPU share. Its fields are the simulated state of that copy, which only the event loop changes.
type instance struct {
	id            scaling.ID
	function      *sharedFunction
	gpu           *gpu
	at            int // index of the GPU
	configuration scaling.Configuration
	most          int // requests in a batch

	ready     bool // loaded
	leaving   bool // takes no more batches
	deployed  bool // the scaler counts on it
	residency scaling.Residency
	since     time.Duration // of the residency
	lastUsed  time.Duration
	use       residency.Meter

	batch   []int32 // that runs
	began   time.Duration
	done    float64 // part of it that is done
	sm      share.PerMille
	takes   time.Duration // the whole batch, on sm
	target  time.Duration // that the batch may take: SMs beyond what that needs are not asked for
	planned int           // counts plans of its end, so that one made before is not believed
}

// reservedSMs returns the SMs that are reserved for the instance, or minSM if it reserves none.
func (i *instance) reservedSMs() share.PerMille {
	if i.residency == scaling.Shared {
		return minSM
	}
	return i.configuration.Share.SMRequest
}

// minSM is the least number of SMs, in per mille, of an instance that reserves none, so that it makes progress.
const minSM share.PerMille = 10
