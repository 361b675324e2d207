package shapes

import "github.com/gshare-dev/gshare/vgpu/share"

// Config is what the GPUs of a fleet have in common.
type Config struct {
	GPUs    int            // how many there are
	Memory  share.Bytes    // of each
	Reserve share.PerMille // of every window, kept back on a GPU that switches between configurations
}

// Fleet is a number of equal GPUs and the pods on them.
type Fleet struct {
	config Config
	fresh  func() board
	learn  func(Pod) // that a pod has come
	gpus   []gpu
	home   map[int]seat // by the id of the pod
}

// gpu is one device. Its memory is booked here, for all policies alike (F25).
type gpu struct {
	board
	pods   int
	memory share.Bytes
}

type seat struct {
	gpu int
	pod Pod
}

// Place puts a pod on the GPU in use where it wastes least, else on the first empty one, and returns its number; among
// equals the lower number. It answers false if no GPU has room. No pod on the fleet may have the same id.
func (f *Fleet) Place(id int, p Pod) (int, bool) {
	if p.Check(f.config.Memory) != nil {
		return 0, false
	}
	f.learn(p)
	best := f.leastWaste(p)
	if best < 0 {
		best = f.firstEmpty()
	}
	if best < 0 {
		return 0, false
	}
	g := &f.gpus[best]
	g.place(id, p)
	g.pods++
	g.memory += p.Memory
	f.home[id] = seat{best, p}
	return best, true
}

func (f *Fleet) leastWaste(p Pod) int {
	best, least := -1, most
	for i := range f.gpus {
		g := &f.gpus[i]
		if g.pods == 0 || g.memory+p.Memory > f.config.Memory {
			continue
		}
		if w, ok := g.offer(p, least); ok {
			best, least = i, w
		}
	}
	return best
}

// firstEmpty clears an empty GPU, or takes one that was never used, else -1; an empty GPU is a new one (FG-114, FG-119).
func (f *Fleet) firstEmpty() int {
	for i := range f.gpus {
		if f.gpus[i].pods == 0 {
			f.gpus[i] = gpu{board: f.fresh()}
			return i
		}
	}
	if len(f.gpus) < f.config.GPUs {
		f.gpus = append(f.gpus, gpu{board: f.fresh()})
		return len(f.gpus) - 1
	}
	return -1
}

// Remove takes a pod away. An unknown id changes nothing.
func (f *Fleet) Remove(id int) {
	s, ok := f.home[id]
	if !ok {
		return
	}
	delete(f.home, id)
	g := &f.gpus[s.gpu]
	g.remove(id)
	g.pods--
	g.memory -= s.pod.Memory
}
