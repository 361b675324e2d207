package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

// TestFeatures: an agent of a cluster does not start with a key that needs a feature that is off. With the feature on it goes on, up to the
// connection to its cluster, which there is none of. An agent without Kubernetes ignores the keys.
func TestFeatures(t *testing.T) {
	for feature, key := range map[string]string{
		"ModelStore": "modelStore: true", "MIGOnDemand": "onDemand: [GPU-1]", "ResourceClaims": "resourceClaims: [all]", "Swap": "swap: {hostMemoryMiB: 1}",
	} {
		name, _, _ := strings.Cut(key, ":")
		refused := "kubernetes." + name + ": the feature " + feature + " is Alpha and off: start gshare-node with --feature-gates=" + feature + "=true"
		for want, flags := range map[string][]string{refused: nil, "kubernetes.kubeconfig": {"--feature-gates=" + feature + "=true"}} {
			t.Run(feature+"/"+want, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "node.yaml")
				text := "apiVersion: gshare.dev/v1alpha1\nkind: NodeConfiguration\ntenancy: mixed\nkubernetes:\n  nodeName: a\n  kubeconfig: /none\n  " + key + "\n"
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := command()
				cmd.SetArgs(append([]string{"--config", file}, flags...))
				err := cli.Execute(context.Background(), cmd)
				if err == nil || !strings.HasPrefix(err.Error(), want) || cli.ExitCode(err) != 2 {
					t.Errorf("%v, want %s", err, want)
				}
			})
		}
	}
}

// TestUnknownFeature: an unknown gate is a usage error.
func TestUnknownFeature(t *testing.T) {
	cmd := command()
	cmd.SetArgs([]string{"--feature-gates=Swop=true"})
	if err := cli.Execute(t.Context(), cmd); err == nil || cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), "--feature-gates: unrecognized feature gate: Swop") {
		t.Errorf("%v", err)
	}
}
