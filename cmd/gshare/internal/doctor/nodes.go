package doctor

import (
	"fmt"
	"strings"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// labelGPUs selects the nodes whose GPUs gshare shares: the DaemonSet runs the agent there.
//
//	kind: label
//	object: node
//	written by: administrator
//	values: "true"
//	default: none, the node has no agent
//	example: gshare.dev/gpus: "true"
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
			e.checkGPUs(s, n)
			e.checkPods(s, n)
			e.checkDrain(s, n)
		}
	}
	e.addCheck(agent, "", "nodes", examined > 0, Failed, countOf(examined, "node")+" with GPUs of gshare", "kubectl label node NODE "+labelGPUs+"=true")
}

// agentsOn returns the agent pods on a node that have not terminated.
func agentsOn(s *cluster.Snapshot, node string) (list []*v1.Pod) {
	for _, pod := range s.Pods {
		key, value, _ := strings.Cut(AgentPods, "=")
		if pod.Namespace == cluster.Namespace && pod.Spec.NodeName == node && pod.Labels[key] == value && !kube.Ended(pod) {
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
			e.addFinding(agent, "", "daemonset", OK, strings.TrimSpace(d.Name+" "+imageOf(&d.Spec.Template.Spec)), "")
			return d
		}
	}
	e.addFinding(agent, "", "daemonset", Failed, "no DaemonSet with pods "+AgentPods, applyAll)
	return nil
}

// checkKubelet checks the version and the readiness of the node's kubelet.
func (e *examination) checkKubelet(n *examinedNode) {
	info := n.Object.Status.NodeInfo
	r, err := parseRelease(info.KubeletVersion)
	if err != nil {
		e.addFinding(kubelet, n.Name, "version", Unknown, info.KubeletVersion, "")
	} else {
		e.checkKubeletVersion(n, *r)
		if e.release != nil {
			e.addCheck(kubelet, n.Name, "skew", e.release.atLeast(*r), Failed, info.KubeletVersion+", API server "+e.release.String(),
				"upgrade the API server: a kubelet must not be newer")
		}
	}
	ready, message := conditionOf(n.Object, v1.NodeReady)
	e.addCheck(kubelet, n.Name, "ready", ready == v1.ConditionTrue, Failed, message, "kubectl describe node "+n.Name)
}

// checkKubeletVersion checks that the version of the node's kubelet is supported. On a version that may lack PodsAPI, a ready node agent shows
// that it can read pods in another way.
func (e *examination) checkKubeletVersion(n *examinedNode, r release) {
	version := n.Object.Status.NodeInfo.KubeletVersion
	if !r.atLeast(minKubelet) || r.atLeast(hasPodsAPI) {
		e.addCheck(kubelet, n.Name, "version", r.atLeast(minKubelet), Failed, version, "upgrade to "+minKubelet.String()+", the oldest supported version")
		return
	}
	works := len(n.agents) > 0 && isReady(n.agents[0])
	e.addCheck(kubelet, n.Name, "version", works, Failed, version+", which has no PodsAPI by default",
		"add manifests/older or gshare-older.yaml to the installation (docs/install.md), or turn on the kubelet's feature gate PodsAPI")
}

// conditionOf returns the status and the message of a node's condition, such as Ready.
func conditionOf(n *v1.Node, kind v1.NodeConditionType) (v1.ConditionStatus, string) {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status, strings.TrimSpace(c.Reason + " " + c.Message)
		}
	}
	return v1.ConditionUnknown, "no condition " + string(kind)
}

// firstWithCDI is the first version of containerd that enables CDI by default.
var firstWithCDI = release{2, 0}

// checkRuntime checks that the container runtime supports CDI (Container Device Interface), by which containers get their GPUs. It only checks
// containerd.
func (e *examination) checkRuntime(n *examinedNode) {
	message := n.Object.Status.NodeInfo.ContainerRuntimeVersion
	name, text, _ := strings.Cut(message, "://")
	r, err := parseRelease(text)
	switch {
	case err != nil || name != "containerd":
		e.addFinding(containers, n.Name, "cdi", Warning, message, "check that the runtime supports CDI 0.6 and has it enabled: gshare is tested with containerd only")
	case r.atLeast(firstWithCDI):
		e.addFinding(containers, n.Name, "cdi", OK, message, "")
	case r.atLeast(release{1, 7}):
		e.addFinding(containers, n.Name, "cdi", Warning, message, "set enable_cdi = true in the configuration of containerd, 1.7.2 or later")
	default:
		e.addFinding(containers, n.Name, "cdi", Failed, message, "upgrade to containerd "+firstWithCDI.String())
	}
}

// checkAgent checks that the node agent's pod is ready and runs the image of its DaemonSet. expected is nil if the DaemonSet could not be read.
func (e *examination) checkAgent(n *examinedNode, expected *apps.DaemonSet) {
	const logs = "kubectl logs -n " + cluster.Namespace + " "
	if len(n.agents) == 0 {
		e.addFinding(agent, n.Name, "running", Failed, "no node agent", "kubectl label node "+n.Name+" "+labelGPUs+"=true, and check that the DaemonSet's pods tolerate the node's taints")
		return
	}
	pod := n.agents[0]
	restarts := int32(0)
	for _, c := range pod.Status.ContainerStatuses {
		restarts += c.RestartCount
	}
	e.addCheck(agent, n.Name, "running", isReady(pod), Failed, fmt.Sprintf("pod %s, %s, %d restarts%s", pod.Name, pod.Status.Phase, restarts, waitingReasons(pod)), logs+pod.Name)
	if expected != nil {
		image, want := imageOf(&pod.Spec), imageOf(&expected.Spec.Template.Spec)
		e.addCheck(agent, n.Name, "current", image == want, Warning, image, "wait for the rollout to "+want+" (kubectl -n "+cluster.Namespace+" rollout status)")
	}
}

// waitingReasons returns the reasons why containers of a pod have not started, such as ImagePullBackOff.
func waitingReasons(pod *v1.Pod) (text string) {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			text += fmt.Sprintf(", %s: %s %s", c.Name, w.Reason, w.Message)
		}
	}
	return text
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
