package cluster

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

func profilesFrom(t *testing.T, text string) ([]Profile, string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: Namespace, Name: "gshare-scheduler"}
	return Profiles(t.Context(), fake.NewClientset(&v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"config.yaml": text}}))
}

func TestProfiles(t *testing.T) {
	profiles, note := profilesFrom(t, string(manifests.SchedulerConfig))
	if note != "" || len(profiles) != 3 || profiles[0].Name != "gshare" || profiles[1].Packer.Rules.Model != packing.Rectangles {
		t.Fatalf("%s: %+v", note, profiles)
	}
	profiles, note = profilesFrom(t, `kind: KubeSchedulerConfiguration
profiles:
- {schedulerName: stock}
- schedulerName: mine
  plugins: {multiPoint: {enabled: [{name: SlotPacking}]}}
  pluginConfig: [{name: SlotPacking, args: {balance: {scarcity: false}}}]
`)
	if note != "" || len(profiles) != 1 || profiles[0].Name != "mine" {
		t.Errorf("%s: %+v", note, profiles)
	}
}

// TestProfilesArguments: each plugin's own arguments decide, as in the scheduler.
func TestProfilesArguments(t *testing.T) {
	none := packing.Terms{}
	for name, c := range map[string]struct {
		plugin, args string
		want         packing.Ranker
	}{
		"terms off":      {"SlotPacking", "{balance: {fragmentation: false, stranding: false, cpuShortage: false, scarcity: false}}", packing.Balance{Terms: none, Demand: &packing.Demand{}}},
		"terms, default": {"SlotPacking", "{candidateNodes: 8}", packing.Balance{Terms: packing.AllTerms, Demand: &packing.Demand{}}},
		"weights":        {"ComplementaryPacking", "{alphaPercent: 100}", packing.Complementary{Alpha: 1000}},
		"no weights":     {"ComplementaryPacking", "{}", packing.DiluWeights},
		"no arguments":   {"ComplementaryPacking", "null", packing.DiluWeights},
	} {
		t.Run(name, func(t *testing.T) {
			profiles, note := profilesFrom(t, "kind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: mine\n"+
				"  plugins: {multiPoint: {enabled: [{name: "+c.plugin+"}]}}\n  pluginConfig: [{name: "+c.plugin+", args: "+c.args+"}]\n")
			if note != "" || len(profiles) != 1 || !reflect.DeepEqual(profiles[0].Packer.Ranker, c.want) {
				t.Errorf("%s: %+v, want %+v", note, profiles, c.want)
			}
		})
	}
}

// TestProfilesInvalid: arguments with which the scheduler would not start are in the note.
func TestProfilesInvalid(t *testing.T) {
	profiles, note := profilesFrom(t, "kind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: mine\n"+
		"  plugins: {multiPoint: {enabled: [{name: SlotPacking}]}}\n  pluginConfig: [{name: SlotPacking, args: {alphaPercent: 100}}]\n")
	if len(profiles) != 3 || !strings.Contains(note, "defaults are assumed") || !strings.Contains(note, "profile mine: SlotPacking") {
		t.Errorf("%s: %+v", note, profiles)
	}
}

// What cannot be read is assumed, and said.
func TestProfilesAssumed(t *testing.T) {
	for name, text := range map[string]string{"none": "", "malformed": "KubeSchedulerConfiguration: [", "of nobody": "kind: KubeSchedulerConfiguration"} {
		t.Run(name, func(t *testing.T) {
			if profiles, note := profilesFrom(t, text); len(profiles) != 3 || !strings.Contains(note, "defaults are assumed") {
				t.Errorf("%q, %+v", note, profiles)
			}
		})
	}
}
