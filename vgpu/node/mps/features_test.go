package mps

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// TestFeatures: what the program's help names is there; also the fake of an older driver, and that of one with namespaces.
func TestFeatures(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   Features
	}{
		"580": {"echo 'usage: -d -f'\n", Features{}},
		"590": {"[ \"$1\" = -h ] && echo '-S or --static-partitioning'\n", Features{StaticPartitions: true}},
		"615": {"[ \"$1\" = -p ] && echo 'server namespace client' || echo '--static-partitioning'\n", Features{true, true}},
		"bad": {"exit 1\n", Features{}},
	} {
		program := filepath.Join(t.TempDir(), "mps")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+c.script), 0o755); err != nil {
			t.Fatal(err)
		}
		if got, err := (Daemons{Program: program}).Features(t.Context()); got != c.want || err != nil {
			t.Errorf("%s: %+v, want %+v (%v)", name, got, c.want, err)
		}
	}
	for driver, want := range map[string]Features{"": {}, namespaces: {Namespaces: true}} {
		if got, err := (Daemons{Program: filepath.Join(fake(t), driver, program)}).Features(t.Context()); got != want || err != nil {
			t.Errorf("the fake %q: %+v, %v", driver, got, err)
		}
	}
	if got, err := (Daemons{Program: "/nowhere/mps"}).Features(t.Context()); err == nil {
		t.Errorf("without a program: %+v", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if got, err := (Daemons{Program: filepath.Join(fake(t), namespaces, program)}).Features(ended); err == nil {
		t.Errorf("a program that was ended before it said anything: %+v", got)
	}
}
