package main

import (
	"strings"
	"testing"
	"unicode"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// forge is what a tenant writes to rewrite an administrator's terminal, and to have a line look like one of gshare's own.
const forge = "\x1b[2J\x1b]0;title\a\u009b1A\r\nforged\tok\u202e"

// TestHostileTexts: annotations, messages of conditions and events that users of a namespace can write do not reach the terminal of who looks at their
// pods and functions as escape sequences or lines of their own.
func TestHostileTexts(t *testing.T) {
	a := servingCluster(t)
	written, err := kube.EncodeEnforcementStatus(kube.EnforcementStatus{Containers: []kube.ContainerEnforcement{{
		Name: "main", Memory: forge, SMs: forge, Time: forge, Health: forge + strings.Repeat("x", 100_000), Missing: []string{forge, enforcement.MPSDaemon + forge, enforcement.DriverCounts + forge},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.pods {
		p := &a.pods[i]
		if p.Namespace != "ml" {
			continue
		}
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[kube.AnnotationEnforcementStatus] = written
		p.Status.Message, p.Status.Reason = forge, forge
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: forge})
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "Error", Message: forge}}}}
	}
	for i := range a.functions {
		f := &a.functions[i]
		f.Status.Pods, f.Status.Share, f.Status.Observed.Hit, f.Status.ServedBy = forge, forge, forge, forge
		for j := range f.Status.Conditions {
			f.Status.Conditions[j].Message, f.Status.Conditions[j].Reason = forge, forge
		}
	}
	for i := range a.events {
		a.events[i].Message = forge
	}
	kubeconfig := a.kubeconfig(t)
	for _, command := range clusterLines() {
		for _, format := range []string{"table", "json", "yaml"} {
			t.Run(command+" -o "+format, func(t *testing.T) {
				out, _ := ask(t, kubeconfig, append(strings.Fields(command), "-o", format)...)
				if out == "" {
					t.Fatal("no output (if the command needs arguments or flags: add a line with them to linesOf)")
				}
				if at := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); at >= 0 {
					t.Errorf("control character in %q", out[at:min(at+80, len(out))])
				}
				if format != "table" {
					return
				}
				if strings.Contains(out, "\nforged") {
					t.Errorf("a line of the tenant's own:\n%.2000s", out)
				}
				if command == "doctor" && len(out) > 20_000 {
					t.Errorf("a pod fills %d bytes", len(out))
				}
			})
		}
	}
}
