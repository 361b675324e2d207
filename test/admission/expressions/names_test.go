package expressions_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// documented returns the names in docs/annotations.md, which is written from the source, of one of its sections: those on pods, or on containers of
// pods, that have one of the writers. Names to which something is appended are left out.
func documented(t *testing.T, section string, writers ...string) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/annotations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]+) \\|").FindAllStringSubmatch(rest, -1) {
		onPod := strings.HasPrefix(row[2], "pod") || row[2] == "container"
		if onPod && !strings.HasSuffix(row[1], ".") && slices.ContainsFunc(writers, func(w string) bool { return strings.Contains(row[3], w) }) {
			names = append(names, row[1])
		}
	}
	slices.Sort(names)
	return names
}

// without returns the sorted names without some.
func without(names []string, some ...string) []string {
	return slices.Sorted(slices.Values(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(some, n) })))
}

// TestNames: lists of names in the policies are those that the source defines.
func TestNames(t *testing.T) {
	names, share := readPolicy(t, "names.yaml", "gshare-names"), readPolicy(t, "share.yaml", "gshare-share")
	residency, agent := readPolicy(t, "", "gshare-residency"), readPolicy(t, "", "gshare-agent")
	ofShare := without(documented(t, "Annotations", "user"), kube.AnnotationRebalance)
	var changes []string
	for _, name := range without(share.texts(t, "changes"), "gshare.dev/", kube.AnnotationContainerSlice) {
		changes = append(changes, "gshare.dev/"+name)
	}
	for name, test := range map[string]struct{ got, want []string }{
		"annotations of a share":  {without(names.texts(t, "ofShare")), ofShare},
		"other annotations":       {without(names.texts(t, "others")), without(documented(t, "Annotations", ""), ofShare...)},
		"checked in updates":      {changes, ofShare},
		"resources":               {without(share.texts(t, "unknown"), ""), documented(t, "Resources", "")},
		"of gshare-controller":    {without(residency.texts(t, "changed"), kube.AnnotationResidencyReached), without(documented(t, "Annotations", "gshare-controller"), "gshare.dev/version")},
		"written by node's agent": {without(slices.Compact(without(agent.texts(t, "own"))), "nodes", "gshare-system", kube.AnnotationInventory), documented(t, "Annotations", "node agent")},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.got); diff != "" || len(test.want) < 2 {
				t.Errorf("-documented +in the policy:\n%s", diff)
			}
		})
	}
}

// annotated returns a pod with limits and annotations.
func annotated(limits string, annotations ...string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	for name := range strings.FieldsSeq(limits) {
		if p.Spec.Containers[0].Resources.Limits == nil {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{}
		}
		p.Spec.Containers[0].Resources.Limits[v1.ResourceName(name)] = resource.MustParse("1")
	}
	for _, a := range annotations {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, a, "x")
	}
	return p
}

func templateOf(p *v1.Pod) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
}

func deployment(p *v1.Pod) *appsv1.Deployment {
	return &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, Spec: appsv1.DeploymentSpec{Template: templateOf(p)}}
}

func cronJob(p *v1.Pod) *batchv1.CronJob {
	return &batchv1.CronJob{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"},
		Spec:     batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: templateOf(p)}}},
	}
}

// TestWarnings: the policy gshare-names warns of what gshare does not read.
func TestWarnings(t *testing.T) {
	const share = "gshare/sm gshare/mem"
	p := readPolicy(t, "names.yaml", "gshare-names")
	for name, test := range map[string]struct {
		object, old runtime.Object
		want        []string // regular expressions of the warnings' beginnings
	}{
		"no annotation":         {annotated(""), nil, nil},
		"no template's":         {deployment(annotated("")), nil, nil},
		"of another":            {annotated("", "example.com/isolaton", "gshare.dev.example.com/isolaton"), nil, nil},
		"known":                 {annotated(share, "gshare.dev/isolation", "gshare.dev/slice.main", "gshare.dev/rebalance"), nil, nil},
		"mistyped":              {annotated(share, "gshare.dev/isolaton"), nil, []string{"gshare.dev/isolaton \\(do you mean gshare.dev/isolation\\?\\): gshare does not read"}},
		"two mistyped":          {annotated(share, "gshare.dev/mdoel", "serving.gshare.dev/mem"), nil, []string{"(gshare.dev/mdoel \\(do you mean gshare.dev/model\\?\\), serving.gshare.dev/mem|serving.gshare.dev/mem, gshare.dev/mdoel \\(do you mean gshare.dev/model\\?\\)): gshare does not read"}},
		"a letter more":         {annotated(share, "gshare.dev/classs"), nil, []string{`gshare.dev/classs \(do you mean gshare.dev/class\?\): [^;]*$`}},
		"a letter less":         {annotated(share, "gshare.dev/wokload"), nil, []string{`gshare.dev/wokload \(do you mean gshare.dev/workload\?\)`}},
		"other letters":         {annotated(share, "gshare.dev/sm_linit"), nil, []string{`gshare.dev/sm_linit \(do you mean gshare.dev/sm-limit\?\)`}},
		"other domain":          {annotated(share, "serving.gshare.dev/drian"), nil, []string{`serving.gshare.dev/drian \(do you mean serving.gshare.dev/drain\?\)`}},
		"near none":             {annotated(share, "gshare.dev/colour"), nil, []string{"gshare.dev/colour: gshare does not read .*; it reads gshare.dev/anti-affinity, "}},
		"mistyped, no share":    {annotated("", "gshare.dev/isolaton"), nil, []string{"gshare.dev/isolaton \\(do you mean gshare.dev/isolation\\?\\): gshare does not read"}},
		"no share":              {annotated("nvidia.com/gpu", "gshare.dev/mem"), nil, []string{"gshare.dev/mem: no effect"}},
		"no share, slice":       {annotated("", "gshare.dev/slice.main"), nil, []string{"gshare.dev/slice.main: no effect"}},
		"no share, rebalance":   {annotated("", "gshare.dev/rebalance"), nil, nil},
		"share by claim":        {byClaim(annotated("", "gshare.dev/mem")), nil, nil},
		"Deployment":            {deployment(annotated("", "gshare.dev/isolaton", "gshare.dev/mem")), nil, []string{"gshare.dev/isolaton \\(do you mean gshare.dev/isolation\\?\\): gshare", "gshare.dev/mem: no effect"}},
		"CronJob":               {cronJob(annotated("", "gshare.dev/isolaton")), nil, []string{"gshare.dev/isolaton \\(do you mean gshare.dev/isolation\\?\\): gshare"}},
		"share without SMs":     {deployment(annotated("gshare/mem")), nil, []string{"gshare/sm: a container has gshare/mem in its limits without it"}},
		"share of a Deployment": {deployment(annotated(share, "gshare.dev/mem")), nil, nil},
		"warned before":         {annotated("gshare/mem", "gshare.dev/isolaton"), annotated("gshare/mem", "gshare.dev/isolaton"), nil},
		"added":                 {annotated(share, "gshare.dev/isolaton", "gshare.dev/mdoel"), annotated(share, "gshare.dev/isolaton"), []string{"gshare.dev/mdoel \\(do you mean gshare.dev/model\\?\\): gshare"}},
		"added to a Deployment": {deployment(annotated("gshare/mem")), deployment(annotated("")), []string{"gshare/sm: a container has gshare/mem"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := p.judge(t, test.object, test.old)
			slices.Sort(got)
			if !slices.EqualFunc(got, test.want, func(got, want string) bool { return regexp.MustCompile("^" + want).MatchString(got) }) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func byClaim(p *v1.Pod) *v1.Pod {
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
	return p
}
