package usage

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/serving/api/profileview"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// profile returns the text of a GPUProfile of an image, with a share such as "sm: 20, quota: 100, memory: 1Gi", and a spec.
func profile(name, image, recommended, spec string) string {
	return fmt.Sprintf(`---
apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: %s, namespace: ml}
spec: {%s}
status:
  conditions: [{type: Complete, status: "True", reason: Measured}]
  fingerprint: {image: %q, model: A100}
  recommended: {%s, maxBatch: 1, requestsPerSecond: 3}
`, name, spec, image, recommended)
}

const (
	function = "functionRef: {name: f}"
	small    = "sm: 20, quota: 100, memory: 1525Mi"
	large    = "sm: 60, quota: 50, memory: 1Gi"
	digest   = "sha256:2b8a1f4c"
)

func template(args string) string {
	return "template: {spec: {containers: [{name: server, image: 'registry.example/a:1', command: [serve], args: [" + args + "]}]}}"
}

func decode(t *testing.T, texts ...string) []api.GPUProfile {
	t.Helper()
	all, err := profileview.Decode(strings.NewReader(strings.Join(texts, "")))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestProfilesFor: a profile is of a container by the digest of the image, the model of the GPU and, where it is known, the command.
func TestProfilesFor(t *testing.T) {
	ofFunction := profile("f", "registry.example/a@"+digest, small, function)
	bert := profile("bert", "registry.example/a@"+digest, small, template("bert"))
	gpt := profile("gpt", "registry.example/a@"+digest, large, template("gpt"))
	container := func(image, model string, command ...string) Container {
		c := Container{ImageID: image, Model: model}
		if len(command) > 0 {
			c.Command, c.Args = command[:1], command[1:]
		}
		return c
	}
	for name, test := range map[string]struct {
		profiles []string
		of       Container
		want     string // the profile
		match    Match
	}{
		"the same":              {[]string{ofFunction}, container("registry.example/a@"+digest, "A100"), "ml/f", Same},
		"of another registry":   {[]string{ofFunction}, container("mirror.example:5000/x/a@"+digest, "A100"), "ml/f", Same},
		"without a registry":    {[]string{ofFunction}, container(digest, "A100"), "ml/f", Same},
		"of cri-dockerd":        {[]string{ofFunction}, container("docker-pullable://registry.example/a@"+digest, "A100"), "ml/f", Same},
		"with any command":      {[]string{ofFunction}, container(digest, "A100", "other"), "ml/f", Same},
		"product of a label":    {[]string{ofFunction}, container(digest, "NVIDIA-A100-SXM4-80GB"), "ml/f", Same},
		"another digest":        {[]string{ofFunction}, container("registry.example/a@sha256:0000", "A100"), "", OtherImage},
		"a longer digest":       {[]string{ofFunction}, container(digest+"0", "A100"), "", OtherImage},
		"a tag":                 {[]string{ofFunction}, container("registry.example/a:1", "A100"), "", OtherImage},
		"no image":              {[]string{ofFunction}, container("", "A100"), "", OtherImage},
		"another GPU":           {[]string{ofFunction}, container(digest, "A10"), "", OtherGPU},
		"an unknown GPU":        {[]string{ofFunction}, container(digest, ""), "", OtherGPU},
		"the command":           {[]string{bert, gpt}, container(digest, "A100", "serve", "gpt"), "ml/gpt", Same},
		"the other command":     {[]string{bert, gpt}, container(digest, "A100", "serve", "bert"), "ml/bert", Same},
		"another command":       {[]string{bert, gpt}, container(digest, "A100", "serve", "t5"), "", OtherCommand},
		"no command":            {[]string{bert}, container(digest, "A100"), "", OtherCommand},
		"its own before any":    {[]string{profile("big", digest, large, function), bert}, container(digest, "A100", "serve", "bert"), "ml/bert", Same},
		"any after its own":     {[]string{ofFunction, bert}, container(digest, "A100", "serve", "t5"), "ml/f", Same},
		"the larger share":      {[]string{ofFunction, profile("g", digest, large, function)}, container(digest, "A100"), "ml/g", Same},
		"the larger, reversed":  {[]string{profile("g", digest, large, function), ofFunction}, container(digest, "A100"), "ml/g", Same},
		"more memory":           {[]string{ofFunction, profile("g", digest, "sm: 40, quota: 50, memory: 2Gi", function)}, container(digest, "A100"), "ml/g", Same},
		"alike, the first name": {[]string{profile("z", digest, small, function), ofFunction}, container(digest, "A100"), "ml/f", Same},
	} {
		t.Run(name, func(t *testing.T) {
			got, match := NewProfiles(decode(t, test.profiles...)).For(test.of)
			if got.Profile != test.want || match != test.match {
				t.Errorf("%v (%d), want %s (%d)", got, match, test.want, test.match)
			}
		})
	}
	got, _ := NewProfiles(decode(t, ofFunction)).For(container(digest, "A100"))
	if want := (Profiled{"ml/f", digest, 20, 100, 1525}); got != want || got.String() != "GPUProfile ml/f, sm=20,quota=100,mem=1525" {
		t.Errorf("%+v, %s", got, got)
	}
	if _, match := (*Profiles)(nil).For(container(digest, "A100")); match != OtherImage {
		t.Errorf("without profiles: %d", match)
	}
}

// TestProfilesNotUsed: a note names each profile that is not used, and says why.
func TestProfilesNotUsed(t *testing.T) {
	good := profile("f", digest, small, function)
	edit := func(from, to string) string {
		text := strings.Replace(good, from, to, 1)
		if text == good {
			t.Fatalf("%q is not there", from)
		}
		return text
	}
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"stale":         {edit("conditions: [", "conditions: [{type: Stale, status: \"True\", message: \"another\\e[31m driver\"}, "), `it is Stale: "another\x1b[31m driver"`},
		"not complete":  {edit(`"True"`, `"False"`), "it is not Complete"},
		"no share":      {edit("recommended:", "recommends:"), "it recommends no share"},
		"huge":          {edit("sm: 20", "sm: 2000000000"), "status.recommended.sm: 2000000000 is not from 1 to 100"},
		"no image":      {edit(`image: "`+digest+`"`, `image: ""`), "status.fingerprint: "},
		"no model":      {edit("model: A100", `model: ""`), "status.fingerprint: "},
		"no finger":     {edit("fingerprint:", "fingertip:"), "status.fingerprint: "},
		"beside larger": {good + profile("g", digest, large, function), "ml/g is of the same image, GPU and command"},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewProfiles(decode(t, test.text))
			if want := "GPUProfile ml/f is not used: " + test.want; !slices.ContainsFunc(p.Notes(), func(n string) bool { return strings.HasPrefix(n, want) }) || len(p.Notes()) != 1 {
				t.Errorf("%q, want %q", p.Notes(), want)
			}
			if want := strings.Count(test.text, "kind:") - 1; p.Usable() != want {
				t.Errorf("%d are usable, want %d", p.Usable(), want)
			}
		})
	}
}

func TestModelOf(t *testing.T) {
	for product, want := range map[string]string{
		"A100": "a100", "NVIDIA-A100-SXM4-80GB": "a100", "NVIDIA-A100-PCIE-40GB": "a100", "NVIDIA-A100-80GB-PCIe": "a100", "NVIDIA-H100-80GB-HBM3": "h100",
		"NVIDIA-H100-NVL": "h100", "NVIDIA-H200": "h200", "Tesla-V100-SXM2-32GB": "v100", "NVIDIA-A10": "a10", "NVIDIA-GeForce-RTX-4090": "rtx 4090",
		"RTX 4090": "rtx 4090", "NVIDIA-RTX-6000-Ada-Generation": "rtx 6000 ada generation", "NVIDIA-L40S": "l40s", "": "",
	} {
		t.Run(product, func(t *testing.T) {
			if got := modelOf(product); got != want || modelOf(got) != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
