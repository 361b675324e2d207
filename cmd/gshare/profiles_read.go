package main

import (
	"bytes"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gshare-dev/gshare/serving/api/profileview"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/vgpu/api/versioned"
)

// profileForm is a form of a file of profiles.
type profileForm int

const (
	otherForm   profileForm = iota // anything else, such as a planning.Catalogue or an unreadable file
	objectForm                     // Kubernetes objects
	machineForm                    // what gshare profile has measured on one machine: --state, or -o json
)

// formOf returns the form of a file by its first document.
func formOf(text []byte) profileForm {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var head *struct {
			Kind        string `json:"kind"`
			Fingerprint any    `json:"fingerprint"`
			Trials      any    `json:"trials"`
		}
		switch err := documents.Decode(&head); {
		case err != nil:
			return otherForm
		case head == nil: // an empty document
		case head.Kind != "":
			return objectForm
		case head.Fingerprint != nil && head.Trials != nil:
			return machineForm
		default:
			return otherForm
		}
	}
}

// readProfiles reads the GPUProfiles of all files of --profiles.
func readProfiles(files []string) (all []api.GPUProfile, err error) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--profiles: %w", err)
		}
		if formOf(text) == machineForm {
			return nil, fmt.Errorf("--profiles %s: gshare profile has measured it on one machine, so that it names no image: want GPUProfiles, as kubectl get gpuprofiles -A -o yaml prints them", file)
		}
		found, err := profileview.Decode(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("--profiles %s: %w", file, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// decodeRecord reads what gshare profile has measured on one machine: its file --state, or its output with -o json.
func decodeRecord(text []byte) (*profiler.Record, error) {
	result := profileResult{Record: &profiler.Record{}}
	if err := versioned.Decode(text, profiler.RecordVersion, &result); err != nil {
		return nil, err
	}
	return result.Record, result.Validate()
}
