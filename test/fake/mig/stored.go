package mig

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// act is a line of the file of a GPU that outlives its process.
type act struct {
	Action  geometry.Action
	Profile string
	Start   int
}

// Stored is the GPU as an earlier process left it, by what it has done to it: that stands in a file, line by line.
func Stored(uuid string, m *mig.Model, name string) (*GPU, error) {
	g := New(uuid, m)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(file); ; {
		var a act
		if err := lines.Decode(&a); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		p, _ := m.Profile(a.Profile)
		if err := g.Do(geometry.Step{Action: a.Action, Instance: mig.Instance{Profile: p, Start: a.Start}}); err != nil {
			return nil, err
		}
	}
	g.file = file
	return g, nil
}

// note writes an act down at once: who is killed in it has acted, or not.
func (g *GPU) note(s geometry.Step) {
	if g.file == nil {
		return
	}
	if err := json.NewEncoder(g.file).Encode(act{s.Action, s.Profile.Name, s.Start}); err != nil {
		panic(err) // the test has lost its GPU
	}
}
