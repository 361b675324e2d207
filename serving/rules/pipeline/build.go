package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Build is a build file: what gshare's Python module build has measured of a function, node by node. docs/pipelines.md describes it.
type Build struct {
	Version  int           `json:"version"` // BuildVersion
	Name     string        `json:"function"`
	Inputs   []string      `json:"inputs"`              // names of the function's inputs
	Transfer time.Duration `json:"transferNanoseconds"` // time for the largest output between two stages
	Nodes    []BuiltNode   `json:"nodes"`
}

// BuiltNode holds the measurements of one node.
type BuiltNode struct {
	Name   string         `json:"name"`
	After  []string       `json:"after,omitempty"`
	Chance share.PerMille `json:"chancePerMille,omitempty"` // as Node.Chance
	Memory share.Bytes    `json:"memoryBytes"`              // peak, including weights
	Output share.Bytes    `json:"outputBytes"`              // for the smallest batch, as it is passed on
	Takes  []string       `json:"takes"`                    // types and shapes of the arguments
	Gives  string         `json:"gives"`
	// Times are in ascending order of batches. The key is the name of a Kind, or "cpu" for a machine without a GPU.
	Times map[string][]BatchTime `json:"times"`
}

// BatchTime is the execution time of a request with the given number of items.
type BatchTime struct {
	Batch int           `json:"batch"`
	Time  time.Duration `json:"nanoseconds"`
}

// BuildVersion is the version of build files that this package reads.
const BuildVersion = 1

// Limits of a build file; larger values are errors of input.
const (
	maxBuildBytes = 1 << 20
	maxBatch      = 1 << 20
	maxBatches    = 64 // per kind
)

// ReadBuild reads a build file. It refuses other versions, unknown fields, and values out of range. The error names the field, unless the
// text is not JSON.
func ReadBuild(text []byte) (*Build, error) {
	if len(text) > maxBuildBytes {
		return nil, fmt.Errorf("build file: %d bytes are more than %d", len(text), maxBuildBytes)
	}
	var version struct {
		Version int `json:"version"`
	}
	// Check the version first: another version may have fields that this package does not know.
	if err := json.Unmarshal(text, &version); errors.As(err, new(*json.UnmarshalTypeError)) {
		return nil, errors.New("build file: want an object with the number version")
	} else if err != nil {
		return nil, fmt.Errorf("build file: %.200s", err.Error())
	}
	if version.Version != BuildVersion {
		return nil, share.Invalid("version", "%d is not %d, which this version reads", version.Version, BuildVersion)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	b := &Build{}
	if err := d.Decode(b); err != nil {
		return nil, fmt.Errorf("build file: %.200s", err.Error())
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("build file: something follows the object")
	}
	return b, b.validate()
}

func (b *Build) validate() error {
	if len(b.Inputs) == 0 {
		return share.Invalid("inputs", "there are none")
	}
	for i, n := range b.Nodes {
		if n.Output < 0 || n.Output > share.MaxMemory {
			return share.Invalid(fmt.Sprintf("nodes[%d].outputBytes", i), "%d is outside 0 to %d bytes", n.Output, share.MaxMemory)
		}
		for _, kind := range sortedKeys(n.Times) {
			if err := validateTimes(n.Times[kind]); err != nil {
				return share.Invalid(fmt.Sprintf("nodes[%d].times", i), "on %.64q: %v", kind, err)
			}
		}
	}
	for _, batch := range b.Batches() {
		f := b.unchecked(batch)
		if err := f.Validate(); err != nil {
			return err
		}
	}
	if len(b.Batches()) == 0 {
		return share.Invalid("nodes", "there is no batch at which all nodes were measured")
	}
	return nil
}

func validateTimes(times []BatchTime) error {
	if len(times) == 0 || len(times) > maxBatches {
		return fmt.Errorf("%d batches; want 1 to %d", len(times), maxBatches)
	}
	for i, t := range times {
		switch {
		case t.Batch < 1 || t.Batch > maxBatch:
			return fmt.Errorf("the batch %d is outside 1 to %d", t.Batch, maxBatch)
		case i > 0 && t.Batch <= times[i-1].Batch:
			return fmt.Errorf("the batch %d follows %d", t.Batch, times[i-1].Batch)
		case t.Time <= 0 || t.Time > MaxTime:
			return fmt.Errorf("the time %v is not above 0 and at most %v", t.Time, MaxTime)
		}
	}
	return nil
}

// Batches returns the batches at which every node was measured on some kind of slice, in ascending order.
func (b *Build) Batches() []int {
	nodes := map[int]int{} // by batch: number of nodes measured at it
	for _, n := range b.Nodes {
		seen := map[int]bool{}
		for _, times := range n.Times {
			for _, t := range times {
				seen[t.Batch] = true
			}
		}
		for batch := range seen {
			nodes[batch]++
		}
	}
	var all []int
	for _, batch := range sortedKeys(nodes) {
		if nodes[batch] == len(b.Nodes) {
			all = append(all, batch)
		}
	}
	return all
}

// Function returns the function for requests with the given number of items. The error is a *share.FieldError if a node was not measured
// at this batch.
func (b *Build) Function(batch int) (Function, error) {
	if !slices.Contains(b.Batches(), batch) {
		return Function{}, share.Invalid("batch", "%d is none of those at which all nodes were measured: %v", batch, b.Batches())
	}
	return b.unchecked(batch), nil
}

func (b *Build) unchecked(batch int) Function {
	f := Function{Name: b.Name, Transfer: b.Transfer}
	for _, n := range b.Nodes {
		node := Node{Name: n.Name, After: n.After, Memory: n.Memory, Chance: n.Chance, Times: map[string]time.Duration{}}
		for kind, times := range n.Times {
			if i := slices.IndexFunc(times, func(t BatchTime) bool { return t.Batch == batch }); i >= 0 {
				node.Times[kind] = times[i].Time
			}
		}
		f.Nodes = append(f.Nodes, node)
	}
	return f
}
