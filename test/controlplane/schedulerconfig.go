package controlplane

import (
	"fmt"
	"time"

	"sigs.k8s.io/yaml"
)

// mergeSchedulerConfig adds the kubeconfig and the leader election options to a KubeSchedulerConfiguration. It raises the limits of client
// requests if the caller set none.
func mergeSchedulerConfig(config []byte, kubeconfig string, o SchedulerOptions) ([]byte, error) {
	var root map[string]any
	if err := yaml.Unmarshal(config, &root); err != nil {
		return nil, fmt.Errorf("read scheduler configuration: %w", err)
	}
	if root == nil {
		root = map[string]any{}
	}
	setDefault(root, "apiVersion", "kubescheduler.config.k8s.io/v1")
	setDefault(root, "kind", "KubeSchedulerConfiguration")

	client := section(root, "clientConnection")
	client["kubeconfig"] = kubeconfig
	setDefault(client, "qps", 5000)
	setDefault(client, "burst", 10000)

	election := section(root, "leaderElection")
	election["leaderElect"] = o.LeaderElect
	setDuration(election, "leaseDuration", o.LeaseDuration)
	setDuration(election, "renewDeadline", o.RenewDeadline)
	setDuration(election, "retryPeriod", o.RetryPeriod)

	merged, err := yaml.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("write scheduler configuration: %w", err)
	}
	return merged, nil
}

// section returns the map under the key of a configuration, and adds an empty one if there is none.
func section(root map[string]any, key string) map[string]any {
	found, ok := root[key].(map[string]any)
	if !ok {
		found = map[string]any{}
		root[key] = found
	}
	return found
}

func setDefault(section map[string]any, key string, value any) {
	if _, found := section[key]; !found {
		section[key] = value
	}
}

func setDuration(section map[string]any, key string, d time.Duration) {
	if d != 0 {
		section[key] = d.String()
	}
}
