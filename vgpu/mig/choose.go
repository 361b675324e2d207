package mig

// Chooser places new instances on GPUs of one model by the gradient of fragmentation: where the fewest free slices become
// useless to the profiles that may be asked for next. It is immutable and serves concurrent callers.
type Chooser struct {
	costs *costs
}

// NewChooser prepares the choice for a model.
func NewChooser(m *Model) *Chooser { return &Chooser{costs: m.costs()} }

// GPU is the GPU, by its index, and the start on it at which a new instance does least harm; the first of equal ones. It is
// false where no GPU has a place.
func (c *Chooser) GPU(gpus []Layout, p *Profile) (gpu, start int, ok bool) {
	var least int
	for g, l := range gpus {
		for _, s := range p.Starts {
			i := Instance{p, s}
			if !l.Fits(i) {
				continue
			}
			if harm := c.Harm(l, i); !ok || harm < least {
				gpu, start, ok, least = g, s, true, harm
			}
		}
	}
	return gpu, start, ok
}

// Harm is what creating the instance costs the profiles to come; it may be negative. It compares placements on GPUs of this
// model, so that a scheduler can rank nodes by it.
func (c *Chooser) Harm(l Layout, i Instance) int {
	return c.costs[l.With(i).Used] - c.costs[l.Used]
}
