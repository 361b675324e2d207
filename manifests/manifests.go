// Package manifests holds the files that a cluster is set up with, for the programs that set one up themselves.
package manifests

import "embed"

// SchedulerConfig is the KubeSchedulerConfiguration of gshare-scheduler.
//
//go:embed scheduler/config.yaml
var SchedulerConfig []byte

// Namespace is where gshare's own pods are. NodeAccess is the rights of the node agent; NodePolicies says who may write gshare's
// annotations.
var (
	//go:embed base/namespace.yaml
	Namespace []byte
	//go:embed node/access.yaml
	NodeAccess []byte
	//go:embed node/policies.yaml
	NodePolicies []byte
)

// Admission is the folder of the policies that complete and check pods with shares: a kustomize base.
//
//go:embed admission
var Admission embed.FS
