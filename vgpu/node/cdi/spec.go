// Package cdi keeps the files by which a container runtime is told what to add to a container (Container Device Interface).
// The kubelet passes on the name of a grant before anybody knows whose it is; the file behind the name is written when the
// container is about to be created.
package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gshare-dev/gshare/vgpu/node/atomicfile"
)

const (
	version = "0.6.0" // the first with annotations; containerd has read it since 1.7.2
	kind    = "gshare.dev/grant"
	prefix  = "gshare.dev-grant-"
)

// Name is the device name of a set of tickets, as the kubelet passes it on.
func Name(key string) string { return kind + "=" + key }

// Directory holds the files. It is the runtime's, and others write there too.
type Directory string

// Write says what the container behind a key gets. The runtime sees the whole file or none. The file has to be renamed within
// the directory: that is what runtimes look out for, and one that comes from elsewhere they do not notice.
func (d Directory) Write(key, owner string, edits specs.ContainerEdits) error {
	text, err := json.Marshal(specs.Spec{
		Version: version, Kind: kind,
		Devices: []specs.Device{{Name: key, Annotations: map[string]string{"gshare.dev/owner": owner}, ContainerEdits: edits}},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteFile(d.file(key), text, 0o600)
}

// Remove takes the file behind a key away, so that no container can be created with it.
func (d Directory) Remove(key string) error {
	if err := os.Remove(d.file(key)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// Keys lists the keys that have a file.
func (d Directory) Keys() (keys []string, err error) {
	files, err := filepath.Glob(d.file("*"))
	for _, file := range files {
		keys = append(keys, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), prefix), ".json"))
	}
	return keys, err
}

func (d Directory) file(key string) string { return filepath.Join(string(d), prefix+key+".json") }

// OwnerOf reads whose file lies behind a key; empty if there is none.
func (d Directory) OwnerOf(key string) (string, error) {
	text, err := os.ReadFile(d.file(key))
	if os.IsNotExist(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var spec specs.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return "", fmt.Errorf("decode %s: %w", d.file(key), err)
	}
	if spec.Version != version || spec.Kind != kind || len(spec.Devices) != 1 {
		return "", fmt.Errorf("decode %s: version %.16q, kind %.64q with %d devices is not %s, %s with one device",
			d.file(key), spec.Version, spec.Kind, len(spec.Devices), version, kind)
	}
	return spec.Devices[0].Annotations["gshare.dev/owner"], nil
}

// Clear takes all files away, unfinished ones too.
func (d Directory) Clear() error {
	files, err := filepath.Glob(filepath.Join(string(d), prefix+"*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}
