package kubernetes

import (
	"fmt"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestGateways tracks the pods of gateways.
func TestGateways(t *testing.T) {
	var calls []map[string]string
	g := &Gateways{port: 8082, addresses: map[string]string{}, set: func(a map[string]string) { calls = append(calls, maps.Clone(a)) }}
	pod := func(name, ip string, phase v1.PodPhase) *v1.Pod {
		p, err := slimGateway(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gshare-system", Name: name}, Status: v1.PodStatus{PodIP: ip, Phase: phase}})
		if err != nil {
			t.Fatal(err)
		}
		return p.(*v1.Pod)
	}
	g.setPod(pod("a", "", v1.PodPending))
	g.setPod(pod("a", "10.0.0.1", v1.PodRunning))
	g.setPod(pod("a", "10.0.0.1", v1.PodRunning))
	g.setPod(pod("b", "fd00::2", v1.PodRunning))
	g.setPod(pod("a", "10.0.0.1", v1.PodFailed))
	g.deletePod(types.NamespacedName{Namespace: "gshare-system", Name: "b"})
	g.deletePod(types.NamespacedName{Namespace: "gshare-system", Name: "a"})
	want := "[map[a:10.0.0.1:8082] map[a:10.0.0.1:8082 b:[fd00::2]:8082] map[b:[fd00::2]:8082] map[]]"
	if got := fmt.Sprint(calls); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
