package grant

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/versioned"
)

// recordVersion is the version of the grant records on disk. If an agent finds another version, it makes the grant again from the kubelet's
// record and the pod's placement.
const recordVersion = 1

// record is the content of the file grant.json. Its format is a contract with later agents: see testdata/grant.json.
type record struct {
	Version    int             `json:"version"`
	UID        types.UID       `json:"uid"`
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	Tickets    []string        `json:"tickets"`
	Since      time.Time       `json:"since"`
	BestEffort bool            `json:"bestEffort,omitempty"`
	Placement  json.RawMessage `json:"placement"` // of the container alone, as in the pod's annotation
}

// Encode returns the record of a grant on the named node, as Decode parses it.
func Encode(g Grant, node string) ([]byte, error) {
	placement, err := kube.EncodePlacement(kube.Placement{
		Node: node, UID: g.UID, Model: g.Model, Containers: []kube.PlacedContainer{{Name: g.Container, VGPUs: g.VGPUs}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode grant of %s: %w", g.Owner, err)
	}
	return json.Marshal(record{recordVersion, g.UID, g.Namespace, g.Name, g.Tickets, g.Since, g.BestEffort, json.RawMessage(placement)})
}

// Decode parses a record that Encode returned. It returns an error for records of other versions.
func Decode(text []byte) (Grant, error) {
	var r record
	if err := versioned.Decode(text, recordVersion, &r); err != nil {
		return Grant{}, fmt.Errorf("decode grant: %w", err)
	}
	p, err := kube.DecodePlacement(string(r.Placement))
	switch {
	case err != nil:
		return Grant{}, fmt.Errorf("decode grant: %w", err)
	case p.UID != r.UID || len(p.Containers) != 1 || len(p.Containers[0].VGPUs) != len(r.Tickets):
		return Grant{}, errors.New("decode grant: the placement is not that of the grant")
	}
	return Grant{
		Owner: Owner{r.UID, r.Namespace, r.Name, p.Containers[0].Name}, Tickets: r.Tickets, Model: p.Model,
		VGPUs: p.Containers[0].VGPUs, Since: r.Since, BestEffort: r.BestEffort,
	}, nil
}
