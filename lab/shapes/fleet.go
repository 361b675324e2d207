package shapes

import "github.com/gshare-dev/gshare/vgpu/share"

// Config is the properties that all GPUs of a fleet have.
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

// gpu is one device. Its memory is accounted here, alike for all policies (F25).
type gpu struct {
	board
	pods   int
	memory share.Bytes
}

type seat struct {
	gpu int
	pod Pod
}

// Place puts a pod on the used GPU where it wastes least, else on the first empty one, and returns the number of the GPU, or false
// if none can hold it. Of equal GPUs the lower number is taken. The id must be new.
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

// firstEmpty returns an empty GPU, or one that was never used, else -1; an empty GPU counts as a new one (FG-114, FG-119).
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

// Remove removes a pod. An unknown id changes nothing.
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
