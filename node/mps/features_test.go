package mps

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// TestFeatures: the features are those that the program's help names.
func TestFeatures(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   Features
	}{
		"580":   {"echo 'usage: -d -f'\n", Features{}},
		"590":   {"[ \"$1\" = -h ] && echo '-S or --static-partitioning'\n", Features{StaticPartitions: true}},
		"615":   {"[ \"$1\" = -p ] && echo 'server namespace client' || echo '--static-partitioning'\n", Features{true, true}},
		"fails": {"exit 1\n", Features{}},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "mps")
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+c.script), 0o755); err != nil {
				t.Fatal(err)
			}
			if got, err := (Daemons{Program: program}).Features(t.Context()); got != c.want || err != nil {
				t.Errorf("got %+v, want %+v (%v)", got, c.want, err)
			}
		})
	}
	for driver, want := range map[string]Features{"": {}, driver615: {Namespaces: true}} {
		t.Run("fake driver "+driver, func(t *testing.T) {
			program := filepath.Join(fakeDriver(t), driver, controlProgram)
			if got, err := (Daemons{Program: program}).Features(t.Context()); got != want || err != nil {
				t.Errorf("got %+v, want %+v (%v)", got, want, err)
			}
		})
	}
	t.Run("no program", func(t *testing.T) {
		if got, err := (Daemons{Program: "/nowhere/mps"}).Features(t.Context()); err == nil {
			t.Errorf("got %+v, want an error", got)
		}
	})
	t.Run("killed", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got, err := (Daemons{Program: filepath.Join(fakeDriver(t), driver615, controlProgram)}).Features(ctx); err == nil {
			t.Errorf("got %+v, want an error", got)
		}
	})
}
