package packing

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// SliceID is the UUID of a GPU or of a MIG instance, or the name of a MIG instance that can be created on demand.
type SliceID string

// Slice describes a whole GPU or one MIG instance of a node's inventory: what can be requested of it and how its shares can be isolated.
type Slice struct {
	ID           SliceID
	Device       string // UUID of the physical GPU
	Model        string // of the device, such as "A100"
	Profile      string // MIG profile; empty for a whole GPU
	MemorySlices uint8  // the memory slices of the device, one bit each, that a MIG instance created on demand takes; 0: the slice always exists
	SMs          int
	Memory       share.Bytes
	Classes      []share.Isolation // what the node can enforce here
	Healthy      bool
	Reserve      share.PerMille // part of the window kept back for switching between sets
	MaxShares    int
	Gamma        int64    // γ: bound on Σ SMLimit x QuotaLimit, in per mille of the slice; 0 is DefaultGamma
	MixTenants   bool     // lets pods of different namespaces share the slice
	Locality     Locality // where the GPU is in its node; for whole GPUs only
	Store        bool     // whether shares here can use weights of the node's model store
	Swap         SwapSpace
}

// SwapSpace bounds the memory of shares of class swap, which hold the memory of their slice in turn: what they may have outside the slice,
// and what they keep on it while they wait.
type SwapSpace struct {
	Host share.Bytes // host memory for what they give back between turns, beyond the memory of the slice
	Kept share.Bytes // the most memory of the slice that each share keeps while another has its turn
}

func (s Slice) equals(o Slice) bool {
	return s.ID == o.ID && s.Device == o.Device && s.MemorySlices == o.MemorySlices && s.SMs == o.SMs && s.equalsExceptID(&o)
}

// gammaArea returns γ as an area (SMs x quota).
func (s *Slice) gammaArea() share.Area {
	return share.Area(cmp.Or(s.Gamma, DefaultGamma) * int64(share.WholeArea) / 1000)
}

// checkTerms returns which of the pod's terms the slice does not meet (kind of slice, GPU model, health), or Admitted.
func (s *Slice) checkTerms(t share.Terms) Refusal {
	switch {
	case !s.MatchesKind(t.Slice):
		return WrongKind
	case len(t.Models) > 0 && !slices.Contains(t.Models, s.Model):
		return WrongModel
	case !s.Healthy:
		return Unhealthy
	}
	return Admitted
}

// MatchesKind reports whether the slice is of the requested kind: a whole GPU (the default), any MIG instance, or the name of a MIG
// profile.
func (s *Slice) MatchesKind(kind string) bool {
	switch kind {
	case share.WholeGPU, "":
		return s.Profile == ""
	case share.AnyMIG:
		return s.Profile != ""
	}
	return s.Profile == kind
}

// classFor returns the best isolation class for the share that the slice can enforce. If the slice can enforce none that serves the share,
// it returns the best class anyway, and whether the pod accepts that: whether it asks for best-effort enforcement.
func (s *Slice) classFor(sh share.Share, t share.Terms) (share.Isolation, bool) {
	wanted := acceptableClasses(sh, t.Isolation)
	for _, class := range wanted {
		if slices.Contains(s.Classes, class) {
			return class, true
		}
	}
	// Best-effort enforcement runs regardless; the node's enforcement status says what is missing.
	return wanted[0], t.Enforcement == share.BestEffortEnforcement
}

// The results of acceptableClasses, which are never modified.
var (
	elasticOnly    = []share.Isolation{share.Elastic}
	mpsOnly        = []share.Isolation{share.MPS}
	exclusiveOrMPS = []share.Isolation{share.Exclusive, share.MPS}
)

// acceptableClasses returns the isolation classes that can serve a share, best first. Only pods that ask for class swap get it.
func acceptableClasses(sh share.Share, wanted share.Isolation) []share.Isolation {
	switch {
	case wanted != share.AnyIsolation:
		return []share.Isolation{wanted}
	case sh.SMLimit > sh.SMRequest:
		return elasticOnly
	case sh.IsWhole():
		return exclusiveOrMPS
	}
	return mpsOnly
}

// MilliGPU is a thousandth of the SM-time of one slice. It is rounded, so it serves for ranking nodes only and not for admission.
type MilliGPU int64

// WholeGPU is the SM-time of one whole slice.
const WholeGPU MilliGPU = 1000

// Resident is one share that runs on a slice, with the properties that further shares must be compatible with. A share that requests no
// SM-time, because its instance runs in what others leave idle (residency.Shared), still occupies its memory, counts towards MaxShares and
// keeps these properties.
type Resident struct {
	Tenant string // namespace of the pod
	Model  Model
	Class  share.Isolation
	Share  share.Share // as it counts on the slice
	Use    Use         // what is known about its load; only rankers read it

	Weights []share.Weights // that it uses in addition to its memory; one copy serves all shares of the tenant

	AntiAffinity string // key that no other share of the tenant on the device may have; empty: any may be there
}

func (r Resident) equals(o Resident) bool {
	return r.Tenant == o.Tenant && r.Model == o.Model && r.Class == o.Class && r.Share == o.Share && r.Use == o.Use &&
		slices.Equal(r.Weights, o.Weights) && r.AntiAffinity == o.AntiAffinity
}

// Load is the set of shares on one slice and their sums. The zero value is the load of an empty slice.
type Load struct {
	residents []Resident
	items     []slot.Item // of the shares that request SM-time
	weights   []heldWeights
	memory    share.Bytes
	requested share.Area
	limits    share.Area
}

// Residents returns the shares in the order in which they were added. The caller must not modify the list.
func (l *Load) Residents() []Resident { return l.residents }

// Empty reports whether the slice holds no share.
func (l *Load) Empty() bool { return len(l.residents) == 0 }

// Memory returns the device memory of all shares and of the weights that they use, where weights count once for each tenant. For shares of
// class swap, which hold the memory in turn, the sum may be more than the slice has.
func (l *Load) Memory() share.Bytes { return l.memory }

// Requested returns the sum of the SM-time (SM request x quota request) of the shares. Shares of class swap, which take turns, count as 0.
func (l *Load) Requested() share.Area { return l.requested }

// Add adds a share without checking whether it fits.
func (l *Load) Add(r Resident) {
	l.residents = append(l.residents, r)
	l.memory += r.Share.Memory
	if r.Class == share.Swap {
		return
	}
	if requestsSMTime(r.Share) {
		l.items = append(l.items, itemOf(r.Share))
	}
	l.requested += r.Share.RequestArea()
	l.limits += r.Share.LimitArea()
	l.addWeights(r.Tenant, r.Weights)
}

// clone returns a copy. Adding shares to it does not change the original.
func (l *Load) clone() Load {
	c := *l
	c.residents = slices.Clip(l.residents)
	c.items = slices.Clip(l.items)
	c.weights = slices.Clip(l.weights)
	return c
}

// freeSMTime returns the SM-time of the slice that no share has requested, rounded down. It is 0 for a slice of class swap, which only
// further shares of that class can join.
func (l *Load) freeSMTime() MilliGPU {
	if l.swaps() {
		return 0
	}
	return max(0, WholeGPU-milliGPUOf(l.requested))
}

// swaps reports whether the slice is of class swap.
func (l *Load) swaps() bool { return len(l.residents) > 0 && l.residents[0].Class == share.Swap }

// milliGPUOf converts an area (SMs x quota) to thousandths of a slice, rounded up.
func milliGPUOf(a share.Area) MilliGPU {
	return MilliGPU((a + share.Area(share.Whole) - 1) / share.Area(share.Whole))
}

// requestsSMTime reports whether the share needs turns or a rectangle. A share that requests no SM-time runs in what others leave idle.
func requestsSMTime(s share.Share) bool { return s.SMRequest != 0 || s.QuotaRequest != 0 }

// itemOf returns the request of a share as the slot package's item.
func itemOf(s share.Share) slot.Item { return slot.Item{SM: s.SMRequest, Quota: s.QuotaRequest} }

// checkTurns returns why a share of class swap cannot take turns with the shares on the slice, or Admitted. Neither SM-time nor limits are
// added up, because only one share runs at a time.
func (s *Slice) checkTurns(l *Load, sh share.Share) Refusal {
	if sh.Memory > s.TurnMemory(l) {
		return NoMemory
	}
	return Admitted
}

// TurnMemory returns the most memory with which a further share could take turns with those on a slice of class swap; 0 if none can. Two
// conditions must hold for all shares together:
//
//   - Each fits beside the memory that the others keep while they wait, so that it can begin its turn whoever had the one before.
//   - The sum of their memory is at most that of the slice and of the host, so that there is a place for what they give back between turns.
func (s *Slice) TurnMemory(l *Load) share.Bytes {
	most := s.Memory - s.Swap.Kept*share.Bytes(len(l.residents))
	for i := range l.residents {
		if l.residents[i].Share.Memory > most {
			return 0
		}
	}
	return max(0, min(most, s.Memory+s.Swap.Host-l.memory))
}

// area returns the SM-time that the share takes from others on its slice. A share of class swap takes none, because it runs in a turn of
// its own.
func (a *ShareRequest) area() share.Area {
	if a.Terms.Isolation == share.Swap {
		return 0
	}
	return a.Share.RequestArea()
}

// settlingCost returns the cost that outweighs whatever else speaks for another slice or node, so that a pod joins others like it: one with
// weights goes where its weights already are, and one of class swap to a slice of that class, so that these pods take no more slices from
// others than they need.
func settlingCost(n *Node, pod *Pod, picks []Choice) int64 {
	if pod.Request.Isolation != share.Swap {
		return loadingCost(n, pod, picks)
	}
	if len(picks) == 0 {
		return 0
	}
	var taken int64
	for _, p := range picks {
		if n.Loads[p.Slice].Empty() {
			taken++
		}
	}
	return taken * loadingSteps / int64(len(picks)) * costOfStep // at most as much as loadingCost
}

// heldWeights are the weights of one model that shares of one namespace use on a slice, and the memory that they count for there.
type heldWeights struct {
	tenant string
	digest share.Digest
	memory share.Bytes
}

// weightsOf returns how much memory the weights of a namespace count for on the slice: the largest size that a share there declares, or 0
// if none uses them. The copy may be larger than a share declares; the node charges that share for what it maps beyond its own declaration.
func (l *Load) weightsOf(tenant string, digest share.Digest) share.Bytes {
	for i := len(l.weights) - 1; i >= 0; i-- { // a later entry has the larger size
		if w := &l.weights[i]; w.digest == digest && w.tenant == tenant {
			return w.memory
		}
	}
	return 0
}

// MissingWeights returns the memory that the weights of a pod in a namespace would add to what is already counted for them on the slice.
func (l *Load) MissingWeights(tenant string, weights []share.Weights) share.Bytes {
	var missing share.Bytes
	for _, w := range weights {
		missing += max(0, w.Memory-l.weightsOf(tenant, w.Digest))
	}
	return missing
}

// addWeights counts the weights of a share. It only appends, so that an earlier copy of the load keeps its own contents (search.choose).
func (l *Load) addWeights(tenant string, weights []share.Weights) {
	for _, w := range weights {
		if held := l.weightsOf(tenant, w.Digest); w.Memory > held {
			l.weights = append(l.weights, heldWeights{tenant, w.Digest, w.Memory})
			l.memory += w.Memory - held
		}
	}
}

// A difference in the weights to be loaded always outweighs any difference in the ranker's cost: one step costs more than policy D ever
// charges for all the SM-time of 64 slices.
const (
	loadingSteps = 64
	costOfStep   = 1 << 36
)

// loadingCost returns the cost of the weights that the chosen slices do not hold yet, as a fraction of all weights of the pod. It makes a
// pod go where most of its weights are, whatever else speaks for another slice or node.
func loadingCost(n *Node, pod *Pod, picks []Choice) int64 {
	all := share.MemoryOf(pod.Request.Weights)
	if all == 0 || len(picks) == 0 {
		return 0
	}
	var missing, whole int64 // MiB
	for i, p := range picks {
		if !hasPickOn(picks[:i], p.Slice) {
			missing += mebibytes(n.Loads[p.Slice].MissingWeights(pod.Tenant, pod.Request.Weights))
			whole += mebibytes(all)
		}
	}
	return (missing*loadingSteps + whole - 1) / whole * costOfStep
}

// mebibytes converts to MiB and rounds up, so that no fraction of the weights counts as zero.
func mebibytes(b share.Bytes) int64 { return int64((b + share.MiB - 1) / share.MiB) }

// memoryOn returns the memory that the pod's shares picked on a slice add to it, including the weights that the slice does not hold yet.
func memoryOn(n *Node, pod *Pod, picks []Choice, slice int) share.Bytes {
	memory := n.Loads[slice].MissingWeights(pod.Tenant, pod.Request.Weights)
	for _, p := range picks {
		if p.Slice == slice {
			memory += pod.Request.Containers[p.Container].Share.Memory
		}
	}
	return memory
}
