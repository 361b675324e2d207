package profileview

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// one is a profile as kubectl prints it.
const one = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata:
  creationTimestamp: "2026-11-20T10:00:00Z"
  generation: 1
  name: resnet50
  namespace: ml
  resourceVersion: "1234"
  uid: 0a1b2c3d-0000-4000-8000-000000000000
spec:
  functionRef:
    name: resnet50
  search:
    maxTrials: 60
    strategy: HybridGrowth
  staleAfter: 720h
status:
  completed: "2026-11-20T10:03:00Z"
  conditions:
  - lastTransitionTime: "2026-11-20T10:03:00Z"
    message: ""
    reason: Measured
    status: "True"
    type: Complete
  fingerprint:
    driver: 580.95.05
    gshare: v0.9.0
    image: registry.example/resnet50@sha256:2b8a1f4c
    memoryMiB: 143771
    model: H200
    sms: 132
  gpuSeconds: 120
  notOfThisVersion: {a: [1]}
  points:
  - batch: 1
    meanMicroseconds: 104200
    p99Microseconds: 110000
    quota: 100
    requestsPerSecond: 8.997
    sm: 10
  recommended:
    maxBatch: 8
    memory: 1525Mi
    quota: 80
    requestsPerSecond: 34.9
    sm: 20
  trials: 1
`

// listed returns a list of items, as kubectl prints several objects.
func listed(head string, items ...string) string {
	text := head + "items:\n"
	for _, item := range items {
		text += "- " + strings.ReplaceAll(strings.TrimSuffix(item, "\n"), "\n", "\n  ") + "\n"
	}
	return text
}

func named(name string) string {
	return strings.Replace(one, "name: resnet50\n  namespace", "name: "+name+"\n  namespace", 1)
}

const (
	list      = "apiVersion: v1\nkind: List\nmetadata:\n  resourceVersion: \"\"\n"
	typedList = "apiVersion: serving.gshare.dev/v1alpha1\nkind: GPUProfileList\nmetadata:\n  resourceVersion: \"7\"\n"
	bare      = `{"apiVersion": "serving.gshare.dev/v1alpha1", "kind": "GPUProfile", "metadata": {"name": "a"}}`
)

func TestDecode(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string // names
		err  string
	}{
		"one":                    {one, []string{"ml/resnet50"}, ""},
		"Windows' line ends":     {strings.ReplaceAll(one, "\n", "\r\n"), []string{"ml/resnet50"}, ""},
		"a list":                 {listed(list, one, named("bert")), []string{"ml/resnet50", "ml/bert"}, ""},
		"documents":              {"---\n" + one + "---\n# nothing\n---\n" + named("bert") + "---\n" + listed(list, named("c")), []string{"ml/resnet50", "ml/bert", "ml/c"}, ""},
		"of the API server":      {listed(typedList, "metadata:\n  name: a\n  namespace: ml"), []string{"ml/a"}, ""},
		"JSON":                   {bare, []string{"a"}, ""},
		"JSON, one by one":       {bare + "\n" + bare, []string{"a", "a"}, ""},
		"JSON, a list":           {`{"apiVersion": "v1", "kind": "List", "items": [` + bare + `]}`, []string{"a"}, ""},
		"without status":         {"apiVersion: serving.gshare.dev/v1alpha1\nkind: GPUProfile\nmetadata: {name: a, namespace: b}\n", []string{"b/a"}, ""},
		"nothing":                {"", nil, "there is no GPUProfile"},
		"comments alone":         {"# nothing\n---\n", nil, "there is no GPUProfile"},
		"an empty list":          {list + "items: []\n", nil, "there is no GPUProfile"},
		"no YAML":                {"\t{", nil, "document 1: "},
		"no JSON":                {bare[:60], nil, "document 1: "},
		"another kind":           {strings.Replace(one, "GPUProfile", "GPUFunction", 1), nil, `not "GPUFunction" of "serving.gshare.dev/v1alpha1"`},
		"another version":        {strings.Replace(one, "v1alpha1", "v9", 1), nil, `not "GPUProfile" of "serving.gshare.dev/v9"`},
		"another kind in a list": {listed(list, one, "apiVersion: v1\nkind: Pod"), nil, "document 1: items[1]: want kind GPUProfile"},
		"a list in a list":       {listed(list, listed(list, one)), nil, `items[0]: want kind GPUProfile of serving.gshare.dev/v1alpha1, not "List"`},
		"no kind":                {"models: []\n", nil, `not "" of ""`},
		"a text":                 {"models", nil, "document 1: "},
		"no name":                {strings.Replace(bare, `"a"`, `""`, 1), nil, `metadata: ""`},
		"a name for a terminal":  {strings.Replace(bare, `"a"`, `"\u001b[31m"`, 1), nil, `metadata: "\x1b[31m"`},
		"a huge number":          {strings.Replace(one, "sm: 20", "sm: 1e300", 1), nil, "1e+300"},
		"a text for a number":    {strings.Replace(one, "sm: 20", "sm: much", 1), nil, "sm of type int64"},
		"an alias of aliases": {"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", nil, "excessive aliasing"},
		"deep": {`{"apiVersion": ` + strings.Repeat("[", 20000), nil, "document 1: "},
	} {
		t.Run(name, func(t *testing.T) {
			profiles, err := Decode(strings.NewReader(test.text))
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("%v, want %q", err, test.err)
			}
			var names []string
			for i := range profiles {
				names = append(names, Name(&profiles[i]))
			}
			if !slices.Equal(names, test.want) {
				t.Errorf("%q, want %q", names, test.want)
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		if _, err := Decode(strings.NewReader(strings.Repeat("\n", MaxFile+1))); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Error(err)
		}
	})
}

// TestDecodeTemplate: of a template there is the command, and quantities that take minutes to decode are not decoded.
func TestDecodeTemplate(t *testing.T) {
	p, err := Decode(strings.NewReader(strings.Replace(one, "functionRef:\n    name: resnet50\n", `template: {spec: {containers: [
    {name: server, image: "a:1", command: [serve], args: [--model, bert], resources: {limits: {cpu: "12345678901234567890e999999999"}}}]}}
`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	c := p[0].Spec.Template.Spec.Containers
	if p[0].Spec.FunctionRef != nil || len(c) != 1 || !slices.Equal(c[0].Command, []string{"serve"}) || !slices.Equal(c[0].Args, []string{"--model", "bert"}) {
		t.Errorf("%+v", p[0].Spec)
	}
}

// TestRecommendedOf: what is not known, or no share, is said by the field.
func TestRecommendedOf(t *testing.T) {
	for name, test := range map[string]struct {
		from, to string
		want     Recommended
		err      string
	}{
		"as it is":            {"", "", Recommended{20, 80, 1525 << 20}, ""},
		"decimal":             {"1525Mi", `"2e9"`, Recommended{20, 80, 2e9}, ""},
		"not complete":        {`status: "True"`, `status: "False"`, Recommended{}, "it is not Complete"},
		"no conditions":       {"type: Complete", "type: Other", Recommended{}, "it is not Complete"},
		"no recommendation":   {"  recommended:", "  recommends:", Recommended{}, "it recommends no share"},
		"being deleted":       {"  generation: 1", "  deletionTimestamp: \"2026-11-20T10:00:00Z\"", Recommended{}, "it is being deleted"},
		"no SMs":              {"    sm: 20", "    smLimit: 20", Recommended{}, "status.recommended.sm: 0 is not from 1 to 100"},
		"too many SMs":        {"    sm: 20", "    sm: 9223372036854775807", Recommended{}, "status.recommended.sm: 9223372036854775807 is not"},
		"less than no SMs":    {"    sm: 20", "    sm: -1", Recommended{}, "status.recommended.sm: -1 is not"},
		"no quota":            {"quota: 80", "quota: 0", Recommended{}, "status.recommended.quota: 0 is not"},
		"too much quota":      {"quota: 80", "quota: 101", Recommended{}, "status.recommended.quota: 101 is not"},
		"no memory":           {"memory: 1525Mi", "memory: \"\"", Recommended{}, `status.recommended.memory: "" is no quantity`},
		"little memory":       {"memory: 1525Mi", "memory: 1k", Recommended{}, `status.recommended.memory: "1k" is no quantity`},
		"much memory":         {"memory: 1525Mi", "memory: 1Ei", Recommended{}, `status.recommended.memory: "1Ei" is no quantity`},
		"memory is no number": {"memory: 1525Mi", "memory: much", Recommended{}, `status.recommended.memory: "much" is no quantity`},
		"a huge exponent":     {"memory: 1525Mi", "memory: \"1e999999999\"", Recommended{}, `status.recommended.memory: "1e999999999" is no quantity`},
		"a small exponent":    {"memory: 1525Mi", "memory: \"1E-999999999\"", Recommended{}, `status.recommended.memory: "1E-999999999" is no quantity`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(one, test.from, test.to, 1)
			if test.from != "" && text == one {
				t.Fatalf("%q is not there", test.from)
			}
			p, err := Decode(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			got, err := RecommendedOf(&p[0])
			if got != test.want || (err != nil) != (test.err != "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%+v, %v; want %+v, %q", got, err, test.want, test.err)
			}
		})
	}
}

func TestIsStale(t *testing.T) {
	for name, test := range map[string]struct {
		status string
		want   bool
	}{"yes": {`"True"`, true}, "no": {`"False"`, false}} {
		t.Run(name, func(t *testing.T) {
			p, err := Decode(strings.NewReader(strings.Replace(one, "  conditions:\n", "  conditions:\n  - {type: Stale, status: "+test.status+", reason: Old, message: it is old}\n", 1)))
			if err != nil {
				t.Fatal(err)
			}
			if why, stale := IsStale(&p[0]); stale != test.want || stale && why != "it is old" {
				t.Errorf("%v: %q", stale, why)
			}
		})
	}
}

// FuzzDecode: no text makes the reader, or what reads a profile, panic, or return a share that no GPU has.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{one, measuredText(), listed(list, one), bare + bare, strings.Replace(one, "1525Mi", `"1e999999999"`, 1), "---\n...\n--- a\n", "\t{"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		profiles, err := Decode(strings.NewReader(text))
		if (err == nil) != (len(profiles) > 0) {
			t.Errorf("%d profiles, %v", len(profiles), err)
		}
		for i := range profiles {
			if r, err := RecommendedOf(&profiles[i]); err == nil && (r.SM < 1 || r.SM > 100 || r.Quota < 1 || r.Quota > 100 || r.Memory < 1<<20 || r.Memory > 1<<50) {
				t.Errorf("%+v", r)
			}
			_, _ = Fit("m", &profiles[i], time.Second)
		}
	})
}
