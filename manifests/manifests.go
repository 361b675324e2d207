// Package manifests embeds the manifests that programs of this repository apply or compare with a cluster.
package manifests

import "embed"

// SchedulerConfig is the KubeSchedulerConfiguration file of gshare-scheduler.
//
//go:embed scheduler/config.yaml
var SchedulerConfig []byte

// Namespace is the namespace of gshare's own pods. NodeAccess is the service account and the roles of the node agent, NodePods what it may
// besides where kubelets have no PodsAPI. NodePolicies are the admission policies that restrict who may write gshare's annotations.
var (
	//go:embed base/namespace.yaml
	Namespace []byte
	//go:embed node/access.yaml
	NodeAccess []byte
	//go:embed older/access.yaml
	NodePods []byte
	//go:embed node/policies.yaml
	NodePolicies []byte
)

// Admission holds the kustomize base with the admission policies that complete and validate pods that request GPU shares.
//
//go:embed admission
var Admission embed.FS

//go:embed serving/serving.gshare.dev_gpufunctions.yaml
var functionDefinition []byte

//go:embed serving/serving.gshare.dev_fastpods.yaml
var fastPodDefinition []byte

//go:embed serving/serving.gshare.dev_gpuprofiles.yaml
var profileDefinition []byte

//go:embed serving/serving.gshare.dev_sharepolicies.yaml
var policyDefinition []byte

//go:embed serving/serving.gshare.dev_inferenceplans.yaml
var planDefinition []byte

// ServingDefinitions returns the CustomResourceDefinitions of serving, each as YAML.
func ServingDefinitions() [][]byte {
	return [][]byte{functionDefinition, fastPodDefinition, profileDefinition, policyDefinition, planDefinition}
}
