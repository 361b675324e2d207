package controlplane

import (
	"testing"
	"time"
)

func TestMergeSchedulerConfig(t *testing.T) {
	cases := map[string]struct {
		config  string
		options SchedulerOptions
		want    string
	}{
		"nothing given": {
			want: `apiVersion: kubescheduler.config.k8s.io/v1
clientConnection:
  burst: 10000
  kubeconfig: /k
  qps: 5000
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
`,
		},
		"the caller's limits stay, the options decide on leader election": {
			config: `{clientConnection: {qps: 5, kubeconfig: /other},
				leaderElection: {leaderElect: false, retryPeriod: 9s}, profiles: [{schedulerName: gshare}]}`,
			options: SchedulerOptions{LeaderElect: true, LeaseDuration: 3 * time.Second},
			want: `apiVersion: kubescheduler.config.k8s.io/v1
clientConnection:
  burst: 10000
  kubeconfig: /k
  qps: 5
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  leaseDuration: 3s
  retryPeriod: 9s
profiles:
- schedulerName: gshare
`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := mergeSchedulerConfig([]byte(c.config), "/k", c.options)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
	if _, err := mergeSchedulerConfig([]byte("- a list"), "/k", SchedulerOptions{}); err == nil {
		t.Error("a configuration that is not a map was accepted")
	}
}
