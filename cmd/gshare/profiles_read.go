package main

import (
	"fmt"
	"os"

	"github.com/gshare-dev/gshare/vgpu/api/serving/profileview"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
)

// readProfiles reads the GPUProfiles of all files of --profiles.
func readProfiles(files []string) (all []api.GPUProfile, err error) {
	for _, file := range files {
		found, err := readProfileFile(file)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func readProfileFile(file string) ([]api.GPUProfile, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--profiles: %w", err)
	}
	defer f.Close()
	found, err := profileview.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("--profiles %s: %w", file, err)
	}
	return found, nil
}
