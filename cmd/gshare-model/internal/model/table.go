package model

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Table describes a model: its name, the size of its weights, and how long batches take.
type Table struct {
	Name      string
	Version   string
	Weights   int           // bytes
	Workspace int           // further bytes of device memory that the loaded model takes, such as for a cache
	Load      time.Duration // minimum time of a load, to simulate larger weights
	Token     time.Duration // between the tokens of a generated text
	Batches   []Batch       // in ascending order of their sizes
}

// Batch describes the kernel that stands for a batch.
type Batch struct {
	Size int
	Time time.Duration // on a GPU of its own
	SM   int           // SMs that it keeps busy, in per mille of the GPU's
}

// Validate returns an error if a value is out of bounds.
func (t Table) Validate() error {
	switch {
	case t.Name == "" || len(t.Name) > 253:
		return fmt.Errorf("the name of a model has 1 to 253 bytes, not %d", len(t.Name))
	case t.Weights < len(t.Name):
		return fmt.Errorf("weights of %d bytes: they begin with the model's name and need at least %d", t.Weights, len(t.Name))
	case t.Workspace < 0:
		return fmt.Errorf("the workspace has %d bytes", t.Workspace)
	case t.Load < 0:
		return fmt.Errorf("the time of a load is negative: %v", t.Load)
	case t.Token < 0:
		return fmt.Errorf("the time between tokens is negative: %v", t.Token)
	case len(t.Batches) == 0:
		return errors.New("no batch has a time")
	}
	for i, b := range t.Batches {
		switch {
		case b.Size < 1 || b.Size > profile.MaxBatch:
			return fmt.Errorf("batch size %d is outside 1 to %d", b.Size, profile.MaxBatch)
		case b.Time <= 0 || b.SM < 1 || b.SM > int(share.Whole):
			return fmt.Errorf("batch of %d: %v on %d per mille of the SMs is no kernel", b.Size, b.Time, b.SM)
		case i > 0 && b.Size <= t.Batches[i-1].Size:
			return fmt.Errorf("batch size %d is given twice", b.Size)
		}
	}
	return nil
}

// MaxBatch returns the size of the largest batch.
func (t Table) MaxBatch() int { return t.Batches[len(t.Batches)-1].Size }

// Batch returns the kernel of a batch of n requests, with 1 <= n <= MaxBatch. It interpolates linearly between the times of two sizes in the
// table. A batch below the smallest size takes as long as one of that size.
func (t Table) Batch(n int) Batch {
	i, found := slices.BinarySearchFunc(t.Batches, n, func(b Batch, n int) int { return cmp.Compare(b.Size, n) })
	if found || i == 0 {
		return t.Batches[i]
	}
	below, above := t.Batches[i-1], t.Batches[i]
	part := float64(n-below.Size) / float64(above.Size-below.Size)
	return Batch{n, below.Time + time.Duration(part*float64(above.Time-below.Time)), above.SM}
}

// saturated is the factor by which a batch may take longer on fewer SMs than on the most that were measured, and still count as keeping only
// those fewer SMs busy.
const saturated = 1.05

// FromPoints returns the table of a measured model. A batch has the time that was measured on the most SMs, and keeps busy the fewest SMs
// on which it was about as fast. It reads only measurements on shares, and of those only the ones with the largest quota.
func FromPoints(points []profile.Point) (Table, error) {
	points = slices.DeleteFunc(slices.Clone(points), func(p profile.Point) bool { return p.Resource.SM == 0 })
	if len(points) == 0 {
		return Table{}, errors.New("the table has no measurement on a share of a GPU")
	}
	quota := slices.MaxFunc(points, func(a, b profile.Point) int { return cmp.Compare(a.Resource.Quota, b.Resource.Quota) }).Resource.Quota
	points = slices.DeleteFunc(points, func(p profile.Point) bool { return p.Resource.Quota != quota })
	slices.SortFunc(points, func(a, b profile.Point) int {
		return cmp.Or(cmp.Compare(a.Batch, b.Batch), cmp.Compare(b.Resource.SM, a.Resource.SM))
	})
	t := Table{Name: points[0].Model, Version: "1"}
	for _, p := range points {
		if err := p.Validate(); err != nil {
			return Table{}, err
		}
		if p.Model != t.Name || p.Stage != 0 {
			return Table{}, fmt.Errorf("the table has measurements of %s and of stage %d of %s", t.Name, p.Stage, p.Model)
		}
		if t.Weights == 0 || (p.Memory > 0 && int(p.Memory) < t.Weights) {
			t.Weights = int(p.Memory)
		}
		last := len(t.Batches) - 1
		switch {
		case last < 0 || t.Batches[last].Size != p.Batch:
			t.Batches = append(t.Batches, Batch{p.Batch, p.Mean, int(p.Resource.SM)})
		case float64(p.Mean) <= saturated*float64(t.Batches[last].Time):
			t.Batches[last].SM = int(p.Resource.SM)
		}
	}
	return t, nil
}
