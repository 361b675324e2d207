package mig

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// storedStep is a line of the file from which a later process restores the fake GPU.
type storedStep struct {
	Action  geometry.Action
	Profile string
	Start   int
}

// Stored returns a GPU in the state that an earlier process left it in: it repeats the steps in the named file, and appends further ones.
func Stored(uuid string, m *mig.Model, name string) (*GPU, error) {
	g := New(uuid, m)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(file); ; {
		var a storedStep
		if err := lines.Decode(&a); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		p, _ := m.Profile(a.Profile)
		if err := g.Apply(geometry.Step{Action: a.Action, Instance: mig.Instance{Profile: p, Start: a.Start}}); err != nil {
			return nil, err
		}
	}
	g.file = file
	return g, nil
}

// appendStep appends a step to the file from which a later process restores the GPU.
func (g *GPU) appendStep(s geometry.Step) {
	if g.file == nil {
		return
	}
	if err := json.NewEncoder(g.file).Encode(storedStep{s.Action, s.Profile.Name, s.Start}); err != nil {
		panic(err) // the file was lost
	}
}
