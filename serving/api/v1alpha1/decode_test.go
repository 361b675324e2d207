package v1alpha1

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// minimal is the shortest valid function.
const minimal = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: resnet50}
spec:
  slo: {latency: 69ms}
  template: {spec: {containers: [{command: [serve]}]}}
  resources: {share: {sm: 24, memory: 1525Mi}}
  scaling: {requestsPerSecond: 40}
`

func TestDefaults(t *testing.T) {
	functions, err := Decode([]byte("# models\n---\n" + minimal + "---\n"))
	if err != nil || len(functions) != 1 {
		t.Fatal(functions, err)
	}
	f := functions[0]
	want := share.Share{SMRequest: 240, SMLimit: 240, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 1525 * share.MiB}
	s := f.Spec.Scaling
	if f.Namespace != "default" || f.Share() != want || f.Grace() != 30*time.Second || f.Container().Name != "server" || f.Spec.Protocol != HTTP || f.Spec.Batching.MaxBatch != 1 ||
		f.Spec.SLO.Latency.Value() != 69*time.Millisecond || s.MinReplicas != 0 || *s.MaxReplicas != 10 || *s.Concurrency != 1 ||
		s.Window.Value() != 10*time.Second || s.KeepShared.Value() != 2*time.Minute {
		t.Errorf("%+v", f)
	}
}

// TestUnmeasured holds that a function may lack what is to be measured, and keeps what it says.
func TestUnmeasured(t *testing.T) {
	for name, c := range map[string]struct {
		cut  string
		want share.Share
		rate float64
	}{
		"nothing missing": {"", share.Share{SMRequest: 240, SMLimit: 240, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 1525 * share.MiB}, 40},
		"no share": {"  resources: {share: {sm: 24, memory: 1525Mi}}\n", share.Share{SMRequest: 1000, SMLimit: 1000, QuotaRequest: 1000, QuotaLimit: 1000,
			Memory: 2048 * share.MiB}, 40},
		"no memory": {", memory: 1525Mi", share.Share{SMRequest: 240, SMLimit: 240, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 2048 * share.MiB}, 40},
		"no rate":   {"  scaling: {requestsPerSecond: 40}\n", share.Share{SMRequest: 240, SMLimit: 240, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 1525 * share.MiB}, 0.001},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(minimal, c.cut, "", 1)
			functions, err := DecodeUnmeasured([]byte(text), "2Gi")
			if err != nil || functions[0].Share() != c.want || functions[0].Spec.Scaling.RequestsPerSecond != c.rate {
				t.Errorf("%v, %+v", err, functions)
			}
			if _, err := Decode([]byte(text)); (err != nil) != (c.cut != "") {
				t.Errorf("to be served: %v", err)
			}
		})
	}
}

// TestStartupProbe holds that fields that are not given take the defaults of a pod.
func TestStartupProbe(t *testing.T) {
	for text, want := range map[string]v1.Probe{
		"{}":                                    {PeriodSeconds: 10, FailureThreshold: 3, TimeoutSeconds: 1},
		"{periodSeconds: 0}":                    {PeriodSeconds: 10, FailureThreshold: 3, TimeoutSeconds: 1},
		"{httpGet: {path: /x}}":                 {ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/x"}}, PeriodSeconds: 10, FailureThreshold: 3, TimeoutSeconds: 1},
		"{periodSeconds: 1, timeoutSeconds: 2}": {PeriodSeconds: 1, FailureThreshold: 3, TimeoutSeconds: 2},
		"{failureThreshold: 60}":                {PeriodSeconds: 10, FailureThreshold: 60, TimeoutSeconds: 1},
		"{failureThreshold: 8640}":              {PeriodSeconds: 10, FailureThreshold: 8640, TimeoutSeconds: 1},
		"{initialDelaySeconds: 5}":              {InitialDelaySeconds: 5, PeriodSeconds: 10, FailureThreshold: 3, TimeoutSeconds: 1},
	} {
		t.Run(text, func(t *testing.T) {
			functions, err := Decode([]byte(strings.Replace(minimal, "command: [serve]", "command: [serve], startupProbe: "+text, 1)))
			if err != nil {
				t.Fatal(err)
			}
			p := functions[0].Container().StartupProbe
			if diff := cmp.Diff(want, *p); diff != "" {
				t.Error(diff)
			}
			if limit := time.Duration(int64(want.PeriodSeconds)*int64(want.FailureThreshold)) * time.Second; StartLimit(p) != limit {
				t.Errorf("limit %v, want %v", StartLimit(p), limit)
			}
		})
	}
	functions, err := Decode([]byte(minimal))
	if err != nil || functions[0].Container().StartupProbe != nil {
		t.Errorf("without one: %+v, %v", functions, err)
	}
}

func TestSeveral(t *testing.T) {
	other := strings.ReplaceAll(minimal, "resnet50", "bert")
	full := `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: resnet50, namespace: vision}
spec:
  slo: {latency: 1s500ms}
  protocol: OIP
  batching: {maxBatch: 8}
  template:
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: triton
        command: [sh, -c]
        args: [exec serve --port $PORT]
        env: [{name: MODEL, value: resnet50}, {name: EMPTY}]
        readinessProbe: {httpGet: {path: /v2/health/ready}}
  resources: {share: {sm: 12, quota: 40, quotaLimit: 80, memory: "1610612736"}}
  scaling: {minReplicas: 1, maxReplicas: 3, requestsPerSecond: 0.5, concurrency: 8, window: 2s, keepShared: 1s}
`
	for _, separator := range []string{"---\n", "--- # the next\n", "...\n", "---\r\n", "---\t\n"} {
		functions, err := Decode([]byte(minimal + separator + other + separator + full))
		if err != nil || len(functions) != 3 {
			t.Fatalf("%q: %d functions, %v", separator, len(functions), err)
		}
		if f := functions[2]; f.Grace() != 0 || f.Share().QuotaLimit != 800 || f.Spec.Scaling.RequestsPerSecond != 0.5 || f.Spec.Protocol != OIP || f.Spec.Batching.MaxBatch != 8 || f.Container().Args[0] != "exec serve --port $PORT" {
			t.Errorf("%+v", f)
		}
	}
}

// TestRefused checks that each mistake is named by its field and value, and that nothing is silently ignored.
func TestRefused(t *testing.T) {
	edit := func(old, text string) string {
		if !strings.Contains(minimal, old) {
			t.Fatalf("%q is not in the function", old)
		}
		return strings.Replace(minimal, old, text, 1)
	}
	container := func(text string) string { return edit("command: [serve]", "command: [serve], "+text) }
	openAI := func(text string) string {
		return edit("slo: {latency: 69ms}", "protocol: OpenAI\n  slo: {latency: 69ms, "+text+"}")
	}
	scaling := func(text string) string { return edit("requestsPerSecond: 40", "requestsPerSecond: 40, "+text) }
	part := func(text string) string { return edit("sm: 24", text) }
	for name, test := range map[string]struct{ text, want string }{
		"nothing":               {"# nothing\n", "no function"},
		"not YAML":              {"\t", "document 1"},
		"a list":                {"[]", "document 1"},
		"another kind":          {edit("GPUFunction", "Deployment"), `"Deployment"`},
		"another version":       {edit("v1alpha1", "v1"), `"serving.gshare.dev/v1"`},
		"unknown field":         {edit("latency: 69ms", "latency: 69ms, percentile: 95"), `unknown field "spec.slo.percentile"`},
		"another case":          {edit("latency", "Latency"), `unknown field "spec.slo.Latency"`},
		"a pipeline":            {edit("  scaling:", "  pipeline: {stages: []}\n  scaling:"), "spec.pipeline: only a cluster"},
		"protocol":              {edit("  scaling:", "  protocol: gRPC\n  scaling:"), `spec.protocol: "gRPC"`},
		"tokens of HTTP":        {edit("69ms", "69ms, timePerToken: 50ms"), `spec.slo.timePerToken: want protocol OpenAI, whose answers have tokens, not "HTTP"`},
		"token without a unit":  {openAI("timePerToken: 50"), "spec.slo.timePerToken: 50 has no unit, such as 50ms"},
		"short time of a token": {openAI("timePerToken: 999us"), `spec.slo.timePerToken: "999us" is no duration of 1ms to 1h0m0s`},
		"long time of a token":  {openAI("timePerToken: 61m"), `spec.slo.timePerToken: "61m" is no duration`},
		"aliases of HTTP":       {edit("  scaling:", "  model: {aliases: [a]}\n  scaling:"), `spec.model.aliases: want protocol OpenAI, whose requests name a model, not "HTTP"`},
		"alias with a space":    {edit("  scaling:", "  protocol: OpenAI\n  model: {aliases: [a b]}\n  scaling:"), `spec.model.aliases: "a b" is not`},
		"empty alias":           {edit("  scaling:", "  protocol: OpenAI\n  model: {aliases: ['']}\n  scaling:"), `spec.model.aliases: "" is not`},
		"alias twice":           {edit("  scaling:", "  protocol: OpenAI\n  model: {aliases: [a, A, a]}\n  scaling:"), `spec.model.aliases: "a" is there twice`},
		"many aliases":          {edit("  scaling:", "  protocol: OpenAI\n  model: {aliases: ["+strings.Repeat("a,", 65)+"]}\n  scaling:"), "spec.model.aliases: has 65 names"},
		"batches of HTTP":       {edit("  scaling:", "  batching: {maxBatch: 2}\n  scaling:"), "spec.batching.maxBatch: 2"},
		"large batches":         {edit("  scaling:", "  protocol: OIP\n  batching: {maxBatch: 4097}\n  scaling:"), "spec.batching.maxBatch: 4097"},
		"negative batches":      {edit("  scaling:", "  protocol: OIP\n  batching: {maxBatch: -1}\n  scaling:"), "spec.batching.maxBatch: -1"},
		"image":                 {container("image: x"), `containers[0].image: leave it out and name the program`},
		"a port":                {container("ports: [{containerPort: 80}]"), `unknown field "spec.template.spec.containers[0].ports"`},
		"labels":                {edit("{spec: {containers", "{metadata: {labels: {a: b}}, spec: {containers"), `unknown field "spec.template.metadata"`},
		"annotations":           {edit("name: resnet50", "name: resnet50, annotations: {a: b}"), `unknown field "metadata.annotations"`},
		"a status":              {minimal + "status: {}\n", `unknown field "status"`},
		"repeated field":        {edit("metadata:", "metadata: {name: a}\nmetadata:"), `key "metadata" already set`},
		"no name":               {edit("name: resnet50", ""), "metadata.name:"},
		"bad name":              {edit("resnet50", "ResNet"), `metadata.name: "ResNet"`},
		"long name":             {edit("resnet50", strings.Repeat("a", 51)), "metadata.name:"},
		"bad namespace":         {edit("name: resnet50", "name: a, namespace: a.b"), `metadata.namespace: "a.b"`},
		"no objective":          {edit("latency: 69ms", ""), "spec.slo.latency:"},
		"unit":                  {edit("69ms", "'69'"), "spec.slo.latency: 69 has no unit, such as 69ms"},
		"number":                {edit("69ms", "69"), "spec.slo.latency: 69 has no unit, such as 69ms"},
		"window number":         {scaling("window: 10"), "spec.scaling.window: 10 has no unit, such as 10s"},
		"no duration":           {edit("69ms", "[69ms]"), `spec.slo.latency: "[\"69ms\"]" is no duration`},
		"null objective":        {edit("69ms", "null"), `spec.slo.latency: "" is no duration`},
		"memory as number":      {edit("1525Mi", "1525"), "spec.resources.share.memory: 1525: want a string, not number: add its unit"},
		"part of a percent":     {part("sm: 24.5"), "spec.resources.share.sm: want a whole number, not number 24.5"},
		"command as string":     {edit("[serve]", "serve"), "spec.template.spec.containers.command: want a list, not string"},
		"not an object":         {edit("{latency: 69ms}", "69ms"), "spec.slo: want fields, not string"},
		"negative":              {edit("69ms", "-69ms"), `spec.slo.latency: "-69ms"`},
		"no container":          {edit("{command: [serve]}", ""), "spec.template.spec.containers: there are 0"},
		"two containers":        {edit("{command: [serve]}", "{command: [a]}, {command: [b]}"), "spec.template.spec.containers: there are 2"},
		"no command":            {edit("[serve]", "[]"), "spec.template.spec.containers[0].command:"},
		"only args":             {edit("command: [serve]", "args: [serve, -x]"), "spec.template.spec.containers[0].args: are added to a command, and there is none: name the program to start in spec.template.spec.containers[0].command"},
		"zero byte":             {container(`args: ["\0"]`), "spec.template.spec.containers[0].command: argument 1"},
		"probe":                 {container("readinessProbe: {httpGet: {path: ready}}"), `spec.template.spec.containers[0].readinessProbe.httpGet.path: "ready"`},
		"path of start":         {container("startupProbe: {httpGet: {path: ''}}"), `spec.template.spec.containers[0].startupProbe.httpGet.path: ""`},
		"no period":             {container("startupProbe: {periodSeconds: -1}"), "spec.template.spec.containers[0].startupProbe.periodSeconds: -1 is outside 1 to 86400"},
		"no timeout":            {container("startupProbe: {timeoutSeconds: -1}"), "spec.template.spec.containers[0].startupProbe.timeoutSeconds: -1"},
		"no failures":           {container("startupProbe: {failureThreshold: -2}"), "spec.template.spec.containers[0].startupProbe.failureThreshold: -2"},
		"negative delay":        {container("startupProbe: {initialDelaySeconds: -1}"), "spec.template.spec.containers[0].startupProbe.initialDelaySeconds: -1 is outside 0"},
		"long start":            {container("startupProbe: {failureThreshold: 8641}"), "spec.template.spec.containers[0].startupProbe.failureThreshold: 8641 periods of 10 s"},
		"overflow":              {container("startupProbe: {failureThreshold: 9223372036854775807}"), "startupProbe.failureThreshold: want a whole number of 32 bits, not number 9223372036854775807"},
		"successes":             {container("startupProbe: {successThreshold: 1}"), `unknown field "spec.template.spec.containers[0].startupProbe.successThreshold"`},
		"another probe":         {container("startupProbe: {tcpSocket: {port: 80}}"), `unknown field "spec.template.spec.containers[0].startupProbe.tcpSocket"`},
		"period of ready":       {container("readinessProbe: {httpGet: {path: /}, periodSeconds: 1}"), `unknown field "spec.template.spec.containers[0].readinessProbe.periodSeconds"`},
		"port":                  {container("env: [{name: PORT, value: '1'}]"), `spec.template.spec.containers[0].env[0].name: "PORT"`},
		"variable":              {container("env: [{name: 'A=B'}]"), `spec.template.spec.containers[0].env[0]: "A=B"`},
		"grace":                 {edit("{containers", "{terminationGracePeriodSeconds: 4000, containers"), "spec.template.spec.terminationGracePeriodSeconds: 4000"},
		"no share":              {edit("sm: 24, memory: 1525Mi", ""), "spec.resources.share.sm: is required"},
		"no resources":          {edit("  resources: {share: {sm: 24, memory: 1525Mi}}\n", ""), "spec.resources.share.sm: is required"},
		"two GPUs":              {part("sm: 200"), "spec.resources.share.sm: 200"},
		"quota":                 {part("sm: 24, quota: 0"), "spec.resources.share.quota: 0"},
		"low limit":             {part("sm: 24, quota: 50, quotaLimit: 40"), "spec.resources.share.quotaLimit: 40%"},
		"no memory":             {edit("1525Mi", "''"), `spec.resources.share.memory: ""`},
		"little memory":         {edit("1525Mi", "'1525'"), `spec.resources.share.memory: "1525"`},
		"much memory":           {edit("1525Mi", "2Pi"), `spec.resources.share.memory: "2Pi"`},
		"a profile":             {edit("  scaling:", "  profileRef: {name: x}\n  scaling:"), "spec.profileRef: only a cluster"},
		"a body of a ConfigMap": {edit("  scaling:", "  request: {bodyFrom: {configMap: x, key: cat}}\n  scaling:"), "spec.request.bodyFrom: only a cluster"},
		"no rate":               {edit("requestsPerSecond: 40", ""), "spec.scaling.requestsPerSecond: 0"},
		"no replicas":           {scaling("maxReplicas: 0"), "spec.scaling.maxReplicas: 0"},
		"few replicas":          {scaling("maxReplicas: 1, minReplicas: 2"), "spec.scaling.maxReplicas: 1"},
		"negative replicas":     {scaling("minReplicas: -1"), "spec.scaling.minReplicas: -1"},
		"concurrency":           {scaling("concurrency: 0"), "spec.scaling.concurrency: 0"},
		"window":                {scaling("window: 1s"), `spec.scaling.window: "1s"`},
		"no votes":              {scaling("scaleOutVotes: 0"), "spec.scaling.scaleOutVotes: 0"},
		"many votes":            {scaling("scaleOutVotes: 21"), "spec.scaling.scaleOutVotes: 21"},
		"no votes in":           {scaling("scaleInVotes: 0"), "spec.scaling.scaleInVotes: 0"},
		"many votes in":         {scaling("window: 10s, scaleInVotes: 10"), "spec.scaling.scaleInVotes: 10"},
		"keepShared":            {scaling("keepShared: 0s"), `spec.scaling.keepShared: "0s"`},
		"same name":             {minimal + "---\n" + minimal, "document 2: metadata.name: default/resnet50"},
		"hidden document":       {minimal + "\r--- \r{}", "newline"},
		"large":                 {minimal + "#" + strings.Repeat("x", MaxFile), "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			functions, err := Decode([]byte(test.text))
			if err == nil || functions != nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v does not say %s", err, test.want)
			}
		})
	}
}

// TestEveryMistake checks that all mistakes of a file are named at once.
func TestEveryMistake(t *testing.T) {
	bad := strings.NewReplacer("69ms", "never", "sm: 24", "sm: 0").Replace(minimal)
	_, err := Decode([]byte(bad + "---\n" + strings.Replace(bad, "resnet50", "BERT", 1)))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"document 1: spec.slo.latency", "spec.resources.share.sm: 0", "document 2: metadata.name"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if invalid := (*share.FieldError)(nil); !errors.As(err, &invalid) || invalid.Field != "spec.slo.latency" {
		t.Errorf("the first field is %+v", invalid)
	}
}

// fileOf returns a file that has the function.
func fileOf(f *GPUFunction) *file {
	result := &file{APIVersion: f.APIVersion, Kind: f.Kind, Metadata: fileMeta{f.Name, f.Namespace}, Spec: fileSpec{GPUFunctionSpec: f.Spec}}
	c := f.Container()
	container := fileContainer{Name: c.Name, Command: c.Command, Args: c.Args}
	for _, v := range c.Env {
		container.Env = append(container.Env, fileVariable{v.Name, v.Value})
	}
	if c.ReadinessProbe != nil {
		container.ReadinessProbe = &fileProbe{fileHTTPGet{c.ReadinessProbe.HTTPGet.Path}}
	}
	if p := c.StartupProbe; p != nil {
		start := &fileStartupProbe{nil, p.InitialDelaySeconds, p.PeriodSeconds, p.FailureThreshold, p.TimeoutSeconds}
		if p.HTTPGet != nil {
			start.HTTPGet = &fileHTTPGet{p.HTTPGet.Path}
		}
		container.StartupProbe = start
	}
	result.Spec.Template.Spec = filePod{[]fileContainer{container}, f.Spec.Template.Spec.TerminationGracePeriodSeconds}
	return result
}

// FuzzDecode checks that functions that are taken are valid, and the same after encoding and decoding them again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(minimal + "--- # next\n" + strings.ReplaceAll(minimal, "resnet50", "bert")))
	f.Add([]byte(strings.Replace(minimal, "[serve]", "[serve], env: [{name: A, value: b}], readinessProbe: {httpGet: {path: /}}, startupProbe: {httpGet: {path: /}}", 1)))
	f.Add([]byte("a: &a [*a, *a]\n---\n...\n"))
	f.Add([]byte(strings.Replace(minimal, "40}", "4e1, minReplicas: 11}", 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		functions, err := Decode(text)
		if err != nil {
			return
		}
		var encoded []byte
		for _, function := range functions {
			if err := function.validate(); err != nil {
				t.Errorf("taken, but %v", err)
			}
			if err := function.Share().Validate(); err != nil {
				t.Errorf("taken, but %v", err)
			}
			one, err := yaml.Marshal(fileOf(function))
			if err != nil {
				t.Fatal(err)
			}
			encoded = append(append(encoded, one...), "---\n"...)
		}
		again, err := Decode(encoded)
		if diff := cmp.Diff(functions, again); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", encoded, err, diff)
		}
	})
}
