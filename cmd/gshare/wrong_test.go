package main

import (
	"path/filepath"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/test/wrong"
)

// TestWrongValues: no wrong value of a flag is taken, crashes a command, or is answered with an error for programmers.
func TestWrongValues(t *testing.T) {
	data, err := filepath.Abs("testdata/plan")
	if err != nil {
		t.Fatal(err)
	}
	functions := writeFile(t, "functions.yaml", `
apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: mine}
spec:
  slo: {latency: 69ms}
  request: {path: /}
  resources: {share: {sm: 50, quota: 60, memory: 4Gi}}
  scaling: {requestsPerSecond: 32}
  template:
    spec:
      containers: [{name: server, command: [/bin/false]}]
`)
	hook := fakeHook(t)
	t.Setenv("KUBECONFIG", newCluster(t).kubeconfig(t))
	t.Setenv("GSHARE_SOCKET", "/nonexistent/socket")
	t.Chdir(t.TempDir())
	wrong.Program{Root: root, Lines: map[string][]string{
		"explain": {"one"}, "slo": {"resnet50"}, "load": {"http://127.0.0.1:1"}, "run": {"--mem", "1Gi", "--", "/bin/false"}, "serve": {functions, "--hook", hook},
		"set": {"mine", "--quota", "30"}, "stop": {"mine"}, "top": {"--cluster"}, "profile": {functions, "--hook", hook}, "plan": {
			"--applications", filepath.Join(data, "applications.yaml"), "--profiles", filepath.Join(data, "profiles.yaml"),
			"--prices", filepath.Join(data, "prices.yaml")},
	}, Taken: map[string]string{
		"load --data file": "only @FILE is a file", "load --data folder": "only @FILE is a file",
		"profile --data file": "only @FILE is a file", "profile --data folder": "only @FILE is a file",
		"map --svg file": "a file to write, such as /dev/stdout", "map --svg folder": "a file to write, such as /dev/stdout",
		"load --data contents": "any", "profile --data contents": "any", "map --svg contents": "it is written", "profile --state contents": "it is written",
		"plan --plot contents": "it is written", "load --plot contents": "it is written", "profile --name contents": "it names a run",
		"load --trace number": "a trace of one number",
		"profile --name file": "it names a run", "profile --name folder": "it names a run",
	}}.Try(t)
}
