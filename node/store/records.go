package store

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// grantsOn returns the grants on a slice that the agent has recorded in a directory. If pod is not empty, it returns only grants whose
// record contains that text. A record that cannot be read belongs to a grant that is being made or released, or to another version of the
// agent, or a process of its container holds a lease on it, or it is damaged. It is left out, so that it costs no other pod its weights.
func grantsOn(directory, slice, pod string) (found []grant.Grant, _ error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := atomicfile.TryRead(filepath.Join(directory, e.Name(), "grant.json"))
		if err != nil || !bytes.Contains(text, []byte(pod)) { // decoding takes much longer, and anyone may connect often
			continue
		}
		g, err := grant.Decode(text)
		if err == nil && slices.ContainsFunc(g.VGPUs, func(v kube.PlacedVGPU) bool { return v.Slice == slice }) {
			found = append(found, g)
		}
	}
	return found, nil
}

// Declared returns a function that returns the weights that the pods of a namespace with a share of the slice declare, according to the
// agent's records in a directory. Each digest has the largest size that one of the pods declares. Scheduler and agent charge the pods for
// the same.
func Declared(directory, slice, namespace string) func() (map[rules.Digest]share.Bytes, error) {
	return func() (map[rules.Digest]share.Bytes, error) {
		grants, err := grantsOn(directory, slice, "")
		if err != nil {
			return nil, err
		}
		sizes := map[rules.Digest]share.Bytes{}
		for _, g := range grants {
			for _, w := range g.Weights {
				d, err := rules.ParseDigest(string(w.Digest))
				if err == nil && g.Namespace == namespace {
					sizes[d] = max(sizes[d], w.Memory)
				}
			}
		}
		return sizes, nil
	}
}
