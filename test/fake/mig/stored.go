package mig

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// storedStep is a line in the file of a GPU that outlives its process.
type storedStep struct {
	Action  geometry.Action
	Profile string
	Start   int
}

// Stored returns a GPU that executes the steps in a file and appends further ones, so that it is as an earlier process left it.
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

// store appends a step to the file.
func (g *GPU) store(s geometry.Step) {
	if g.file == nil {
		return
	}
	if err := json.NewEncoder(g.file).Encode(storedStep{s.Action, s.Profile.Name, s.Start}); err != nil {
		panic(err) // the file was lost
	}
}
