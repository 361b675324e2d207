package doctor

import (
	"strings"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// labelGPUs is the node label by which the DaemonSet selects nodes for the agent.
const labelGPUs = "gshare.dev/gpus"

// examinedNode is a node with GPUs managed by gshare, and the agent pods on it.
type examinedNode struct {
	*cluster.Node
	agents []*v1.Pod
}

// checkNodes checks every node that has gshare's GPU label, an agent pod or an inventory annotation.
func (e *examination) checkNodes() {
	s, err := cluster.Read(e.ctx, e.client)
	if err != nil {
		e.addFinding(agent, "", "nodes", Unknown, err.Error(), "run doctor with permission to list nodes and pods")
		return
	}
	expected := e.daemonSet()
	examined := 0
	for _, object := range s.Nodes {
		n := &examinedNode{Node: s.Derive(object, s.Profiles[0], nil, cluster.NoPod), agents: agentsOn(s, object.Name)}
		_, published := object.Annotations[kube.AnnotationInventory]
		if object.Labels[labelGPUs] == "true" || published || len(n.agents) > 0 {
			examined++
			e.checkKubelet(n)
			e.checkRuntime(n)
			e.checkAgent(n, expected)
			e.checkGPUs(n, s.Profiles)
			e.checkPods(s, n)
		}
	}
	e.addCheck(agent, "", "nodes", examined > 0, Failed, countOf(examined, "node")+" with GPUs of gshare", "kubectl label node NODE "+labelGPUs+"=true")
}

// agentsOn returns the agent pods on a node that have not terminated.
func agentsOn(s *cluster.Snapshot, node string) (list []*v1.Pod) {
	for _, pod := range s.Pods {
		key, value, _ := strings.Cut(AgentPods, "=")
		if pod.Namespace == cluster.Namespace && pod.Spec.NodeName == node && pod.Labels[key] == value && !cluster.Ended(pod) {
			list = append(list, pod)
		}
	}
	return list
}

// daemonSet returns the DaemonSet of the node agents, or nil if it cannot be read.
func (e *examination) daemonSet() *apps.DaemonSet {
	list, err := e.client.AppsV1().DaemonSets(cluster.Namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		e.addFinding(agent, "", "daemonset", Unknown, err.Error(), "run doctor with permission to list daemonsets in "+cluster.Namespace)
		return nil
	}
	for i := range list.Items {
		key, value, _ := strings.Cut(AgentPods, "=")
		if d := &list.Items[i]; d.Spec.Template.Labels[key] == value {
			e.addFinding(agent, "", "daemonset", OK, d.Name+" "+d.Spec.Template.Spec.Containers[0].Image, "")
			return d
		}
	}
	e.addFinding(agent, "", "daemonset", Failed, "no DaemonSet with pods "+AgentPods, "kubectl apply -k manifests")
	return nil
}
