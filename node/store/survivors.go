package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// Survivors are the processes that may still have weights of an ended store mapped. They keep the memory until they end, so until then a
// later store may not have the same weights.
type Survivors struct {
	PIDs    []int
	Weights []share.Weights // weights that the ended store may have had
}

// survivorsVersion is the version of the file with the survivors.
const survivorsVersion = 1

// survivorsRecord is the content of the file.
type survivorsRecord struct {
	Version     int          `json:"version"`
	Generations []generation `json:"generations"`
}

// generation is what is left of one store that has ended.
type generation struct {
	Processes []survivor             `json:"processes"`
	Weights   map[string]share.Bytes `json:"weights"` // by digest
}

// survivor identifies a process; its PID alone may be reused.
type survivor struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"`
}

func (s survivor) lives() bool {
	start, err := process.StartTime(s.PID)
	return err == nil && start == s.StartTime
}

func (g generation) lives() bool { return slices.ContainsFunc(g.Processes, survivor.lives) }

func (c Control) survivorsFile() string { return filepath.Join(string(c), "survivors.json") }

// AddSurvivors records the survivors of a store that has ended, before another store starts. If the agent is killed meanwhile, they may be
// counted twice.
func (c Control) AddSurvivors(s Survivors) error {
	record, err := c.readSurvivors()
	if err != nil {
		return err
	}
	added := generation{Weights: map[string]share.Bytes{}}
	for _, pid := range s.PIDs {
		if start, err := process.StartTime(pid); err == nil {
			added.Processes = append(added.Processes, survivor{pid, start})
		}
	}
	for _, w := range s.Weights {
		d := string(w.Digest)
		added.Weights[d] = max(added.Weights[d], w.Memory)
	}
	record.Generations = slices.DeleteFunc(append(record.Generations, added), func(g generation) bool { return !g.lives() })
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteFile(c.survivorsFile(), text, 0o600); err != nil {
		return err
	}
	if err := os.Remove(c.socket()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c Control) readSurvivors() (survivorsRecord, error) {
	record := survivorsRecord{Version: survivorsVersion}
	text, err := os.ReadFile(c.survivorsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err == nil && record.Version != survivorsVersion {
		err = errors.New("survivors of a store: another version")
	}
	return record, err
}

// Held returns, by digest, how much memory the survivors may have. Weights count as held even if the ended store may never have had them:
// nobody knows which it had.
func (c Control) Held() (map[rules.Digest]share.Bytes, error) {
	record, err := c.readSurvivors()
	if err != nil {
		return nil, err
	}
	held := map[rules.Digest]share.Bytes{}
	for _, g := range record.Generations {
		if !g.lives() {
			continue
		}
		for text, bytes := range g.Weights {
			d, err := rules.ParseDigest(text)
			if err != nil {
				return nil, err
			}
			held[d] += bytes
		}
	}
	return held, nil
}
