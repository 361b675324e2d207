// Package manifests holds the files that a cluster is set up with, for the programs that set one up themselves.
package manifests

import _ "embed" // for the files below

// SchedulerConfig is the KubeSchedulerConfiguration of gshare-scheduler.
//
//go:embed scheduler/config.yaml
var SchedulerConfig []byte

// NodeAgent is the namespace, the rights and the DaemonSet of the node agent; NodePolicies says who may write gshare's annotations.
var (
	//go:embed node/agent.yaml
	NodeAgent []byte
	//go:embed node/policies.yaml
	NodePolicies []byte
)
