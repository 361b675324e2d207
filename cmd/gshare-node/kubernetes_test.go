package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// TestNodeMistakes: what a node of a cluster cannot do without is named, with the field.
func TestNodeMistakes(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	c := config.Configuration{Directory: t.TempDir()}.WithDefaults()
	for field, change := range map[string]func(*config.Kubernetes){
		"kubernetes.nodeName":   func(*config.Kubernetes) {},
		"kubernetes.kubeconfig": func(k *config.Kubernetes) { k.NodeName, k.Kubeconfig = "n", "/nowhere" },
	} {
		t.Run(field, func(t *testing.T) {
			broken := c
			change(&broken.Kubernetes)
			err := serveNode(t.Context(), broken, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), field) || cli.ExitCode(err) != 2 {
				t.Errorf("%v", err)
			}
		})
	}
}
