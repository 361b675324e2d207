package bound

import (
	"fmt"
	"math/bits"
)

// class is a set of shapes that the linear program treats as one: they take equal parts of a GPU on the same node types, and similar
// CPU. Classes keep the program small. Because Limit works with the shapes themselves, classes can only make the limit less tight, not
// wrong.
type class struct {
	gpus, milli int64
	size        int     // index into Problem.sizes
	cpu, memory float64 // means, in cores and GiB
	demand      float64
	fits        []bool
	value       float64 // in GPUs, including the reward if the pods must be accepted
	must        bool
	shapes      []int
}

// classesOf groups the shapes into classes. If fine is set, shapes whose CPU differs by a factor of two are in different classes.
func (p *Problem) classesOf(fine bool) []class {
	known := map[string]int{}
	var out []class
	for i := range p.shapes {
		s := &p.shapes[i]
		if s.gpus == 0 && !s.must {
			continue // contributes nothing to the allocation
		}
		width := 0
		if fine {
			width = bits.Len64(uint64(s.cpu / 1000))
		}
		key := fmt.Sprint(s.gpus, s.milli, s.fits, s.must, width)
		at, ok := known[key]
		if !ok {
			at = len(out)
			known[key] = at
			out = append(out, class{gpus: s.gpus, milli: s.milli, size: p.sizeIndex(s.milli), fits: s.fits, must: s.must})
		}
		out[at].add(i, s)
	}
	for i := range out {
		out[i].value = float64(out[i].gpus*out[i].milli) / float64(whole)
		if out[i].must {
			out[i].value += out[i].reward()
		}
	}
	return out
}

// reward returns the additional value that makes the program place pods that must be accepted before others: about the GPUs that others then
// cannot have. A larger reward makes the program hard to solve.
func (k *class) reward() float64 {
	if k.gpus == 0 {
		return 1 + k.cpu/4
	}
	return 0.4*float64(k.gpus) + k.cpu/16
}

func (k *class) add(i int, s *shape) {
	d := float64(s.demand)
	k.cpu = (k.cpu*k.demand + float64(s.cpu)/1000*d) / (k.demand + d)
	k.memory = (k.memory*k.demand + float64(s.memory)/1024*d) / (k.demand + d)
	k.demand += d
	k.shapes = append(k.shapes, i)
}
