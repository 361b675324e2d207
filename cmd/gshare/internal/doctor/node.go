package doctor

import (
	"fmt"
	"strings"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
)

// kubelet checks what the kubelet says of itself.
func (e *examination) kubelet(n *examinedNode) {
	info := n.Object.Status.NodeInfo
	r, err := parseRelease(info.KubeletVersion)
	if err != nil {
		e.say(kubelet, n.Name, "version", Unknown, info.KubeletVersion, "")
	} else {
		e.check(kubelet, n.Name, "version", r.atLeast(leastKubelet), Failed, info.KubeletVersion,
			"upgrade to "+leastKubelet.String()+": the node agent learns of pods through the kubelet's PodsAPI")
		if e.release != nil {
			e.check(kubelet, n.Name, "skew", e.release.atLeast(*r), Failed, info.KubeletVersion+" at API server "+e.release.String(),
				"a kubelet may not be newer than the API server")
		}
	}
	ready, message := condition(n.Object, v1.NodeReady)
	e.check(kubelet, n.Name, "ready", ready == v1.ConditionTrue, Failed, message, "kubectl describe node "+n.Name)
}

func condition(n *v1.Node, kind v1.NodeConditionType) (v1.ConditionStatus, string) {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status, strings.TrimSpace(c.Reason + " " + c.Message)
		}
	}
	return v1.ConditionUnknown, "the node does not say"
}

// cdiByDefault is the containerd that reads CDI files unless told otherwise; 1.7 has to be told.
var cdiByDefault = release{2, 0}

// runtime checks that the container runtime understands CDI, through which containers get their share. Of other runtimes than
// containerd nothing is known here.
func (e *examination) runtime(n *examinedNode) {
	saw := n.Object.Status.NodeInfo.ContainerRuntimeVersion
	name, text, _ := strings.Cut(saw, "://")
	r, err := parseRelease(text)
	switch {
	case err != nil || name != "containerd":
		e.say(containers, n.Name, "cdi", Warning, saw, "see that the runtime supports CDI 0.6 and has it enabled: gshare is tried with containerd")
	case r.atLeast(cdiByDefault):
		e.say(containers, n.Name, "cdi", OK, saw, "")
	case r.atLeast(release{1, 7}):
		e.say(containers, n.Name, "cdi", Warning, saw, "from 1.7.2 on containerd reads CDI files, but only with enable_cdi = true in its configuration")
	default:
		e.say(containers, n.Name, "cdi", Failed, saw, "upgrade to containerd "+cdiByDefault.String())
	}
}

// agent checks that one node agent runs and is the one that the DaemonSet wants.
func (e *examination) agent(n *examinedNode, wanted *apps.DaemonSet) {
	const logs = "kubectl logs -n " + cluster.Namespace + " "
	if len(n.agents) == 0 {
		e.say(agent, n.Name, "running", Failed, "no node agent", "label the node "+labelGPUs+"=true, and see that the DaemonSet's pods tolerate its taints")
		return
	}
	pod := n.agents[0]
	restarts := int32(0)
	for _, c := range pod.Status.ContainerStatuses {
		restarts += c.RestartCount
	}
	e.check(agent, n.Name, "running", isReady(pod), Failed, fmt.Sprintf("pod %s, %s, %d restarts%s", pod.Name, pod.Status.Phase, restarts, waiting(pod)), logs+pod.Name)
	if wanted != nil {
		image, want := pod.Spec.Containers[0].Image, wanted.Spec.Template.Spec.Containers[0].Image
		e.check(agent, n.Name, "current", image == want, Warning, image, "the DaemonSet wants "+want+": a roll-out is under way, or waits for the node")
	}
}

// waiting says what the containers of a pod wait for.
func waiting(pod *v1.Pod) (text string) {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			text += fmt.Sprintf(", %s: %s %s", c.Name, w.Reason, w.Message)
		}
	}
	return text
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
