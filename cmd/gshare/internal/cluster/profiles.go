package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/plugins/registry"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Namespace is the Kubernetes namespace of gshare's own components.
const Namespace = "gshare-system"

// Profile is a profile of the scheduler's configuration that enables one of gshare's plugins.
type Profile struct {
	Name   string // by which pods select it, in spec.schedulerName
	Plugin registry.Plugin
	Packer packing.Packer // places pods as the plugin does while the mix of pods in the cluster is unknown
}

// configuration is the part of a KubeSchedulerConfiguration that selects and configures plugins.
type configuration struct {
	Kind     string `json:"kind"`
	Profiles []struct {
		SchedulerName string `json:"schedulerName"`
		Plugins       struct {
			MultiPoint struct {
				Enabled []struct {
					Name string `json:"name"`
				} `json:"enabled"`
			} `json:"multiPoint"`
		} `json:"plugins"`
		PluginConfig []struct {
			Name string          `json:"name"`
			Args json.RawMessage `json:"args"`
		} `json:"pluginConfig"`
	} `json:"profiles"`
}

// Profiles returns the profiles in the scheduler's configuration, which it reads from a ConfigMap. If that cannot be read, it returns those
// of the default configuration and a note that says so.
func Profiles(ctx context.Context, client kubernetes.Interface) (profiles []Profile, note string) {
	maps, err := client.CoreV1().ConfigMaps(Namespace).List(ctx, metav1.ListOptions{})
	if err == nil {
		for i := range maps.Items {
			if text := schedulerConfig(&maps.Items[i]); text != "" {
				if profiles, err = parseProfiles([]byte(text)); err == nil && len(profiles) > 0 {
					return profiles, ""
				}
			}
		}
	}
	note = "the scheduler's configuration was not found in " + Namespace + ": its defaults are assumed"
	if err != nil {
		note = fmt.Sprintf("the scheduler's configuration cannot be read, its defaults are assumed: %v", err)
	}
	profiles, err = parseProfiles(manifests.SchedulerConfig)
	if err != nil {
		note = err.Error()
	}
	return profiles, note
}

func schedulerConfig(m *v1.ConfigMap) string {
	keys := make([]string, 0, len(m.Data))
	for key := range m.Data {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if text := m.Data[key]; strings.Contains(text, "KubeSchedulerConfiguration") {
			return text
		}
	}
	return ""
}

func parseProfiles(text []byte) (profiles []Profile, err error) {
	var c configuration
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	for _, p := range c.Profiles {
		for _, enabled := range p.Plugins.MultiPoint.Enabled {
			if !registry.Has(enabled.Name) {
				continue
			}
			var args runtime.Object
			for _, with := range p.PluginConfig {
				if with.Name == enabled.Name && with.Args != nil {
					args = &runtime.Unknown{Raw: with.Args}
				}
			}
			plugin, err := registry.Load(enabled.Name, args)
			if err != nil {
				return nil, fmt.Errorf("scheduler configuration: profile %s: %w", p.SchedulerName, err)
			}
			packer := packing.Packer{Rules: packing.NewRules(plugin.Model), Ranker: plugin.Ranker(&packing.Demand{})}
			profiles = append(profiles, Profile{p.SchedulerName, plugin, packer})
		}
	}
	return profiles, nil
}
