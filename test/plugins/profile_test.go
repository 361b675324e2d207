package plugins_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/gshare-dev/gshare/plugins"
)

const manifest = "../../manifests/scheduler/config.yaml"

// newScheduler creates a scheduler from the configuration file, as kube-scheduler does.
func newScheduler(t *testing.T, file string) (*scheduler.Scheduler, error) {
	t.Helper()
	cfg, err := options.LoadConfigFromFile(klog.Background(), file)
	if err != nil {
		return nil, err
	}
	client := fake.NewClientset()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	t.Cleanup(broadcaster.Shutdown)
	return scheduler.New(t.Context(), client, informers.NewSharedInformerFactory(client, 0), nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry(plugins.All())))
}

func names(set config.PluginSet) []string {
	var out []string
	for _, p := range set.Enabled {
		out = append(out, p.Name)
	}
	return out
}

func TestManifestProfiles(t *testing.T) {
	sched, err := newScheduler(t, manifest)
	if err != nil {
		t.Fatal(err)
	}
	for profileName, plugin := range map[string]string{
		"gshare": "SlotPacking", "gshare-rectangle": "RectanglePacking", "gshare-complementary": "ComplementaryPacking",
	} {
		t.Run(profileName, func(t *testing.T) {
			fw := sched.Profiles[profileName]
			if fw == nil {
				t.Fatal("no such profile")
			}
			all := fw.ListPlugins()
			for point, set := range map[string]config.PluginSet{
				"preFilter": all.PreFilter, "filter": all.Filter, "preScore": all.PreScore, "score": all.Score, "reserve": all.Reserve,
			} {
				if !slices.Contains(names(set), plugin) {
					t.Errorf("%s: %v has no %s", point, names(set), plugin)
				}
			}
			for _, order := range []struct {
				set    config.PluginSet
				behind string
			}{{all.PostFilter, "DefaultPreemption"}, {all.Bind, "DefaultBinder"}} {
				at, behind := slices.Index(names(order.set), plugin), slices.Index(names(order.set), order.behind)
				if at < 0 || behind < at {
					t.Errorf("%v: %s is not before %s", names(order.set), plugin, order.behind)
				}
			}
			checkWeights(t, all.Score, plugin)
		})
	}
}

// checkWeights checks the plugin's weight: the scores of its nodes may differ by only one point, which must outweigh the
// scores of all other plugins together.
func checkWeights(t *testing.T, set config.PluginSet, plugin string) {
	t.Helper()
	var own, others int32
	for _, p := range set.Enabled {
		if p.Name == plugin {
			own = p.Weight
		} else {
			others += p.Weight
		}
	}
	if own <= 100*others {
		t.Errorf("weight %d does not outdo 100 points from each of %v", own, set.Enabled)
	}
}

func TestStrictArgs(t *testing.T) {
	manifestText, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	text := string(manifestText)
	const slots, complementary = "SlotPacking", "ComplementaryPacking"
	for name, tt := range map[string]struct{ plugin, args, want string }{
		"good":               {slots, "{candidateNodes: 0, balance: {scarcity: false}}", ""},
		"unknown field":      {slots, "{gama: 120}", "gama"},
		"out of range":       {slots, "{candidateNodes: -1}", "candidateNodes: -1"},
		"wrong type":         {slots, "{candidateNodes: [1]}", "candidateNodes"},
		"weights":            {complementary, "{alphaPercent: 50, betaPercent: 50}", ""},
		"a setting of nodes": {slots, "{tenancy: mixed}", "tenancy: is now set on the nodes"},
		"unbalanced weights": {complementary, "{alphaPercent: 50, betaPercent: 60}", "add up to 100"},
		"another plugin's":   {complementary, "{balance: {scarcity: false}}", "balance"},
	} {
		t.Run(name, func(t *testing.T) {
			edited := strings.ReplaceAll(text, "  - name: NodeResourcesFit", "  - name: "+tt.plugin+"\n    args: "+tt.args+"\n  - name: NodeResourcesFit")
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := newScheduler(t, file)
			if tt.want == "" && err != nil {
				t.Fatal(err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v does not mention %s", err, tt.want)
			}
		})
	}
}
