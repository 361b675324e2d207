package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/arrival"
)

// function is a function of the demo: a model with its objective, its share and its load.
type function struct {
	name    string
	kernel  string // flags of gshare-model: the time of a request on a GPU of its own, and the part of the SMs that it keeps busy
	weights string
	slo     string
	sm      int     // percent of the SMs
	rate    float64 // requests a second that one replica answers within the objective
	series  int     // index in the trace, in descending order of rate
	scale   float64 // requests for each request in the trace
}

var functions = []function{
	{"resnet50", "--batch 1=8ms --sm 24", "100Mi", "100ms", 24, 60, 1, 10}, // steady
	{"bert", "--batch 1=20ms --sm 40", "400Mi", "500ms", 40, 35, 0, 2},     // two bursts, and nothing else
	{"yolo", "--batch 1=12ms --sm 30", "200Mi", "150ms", 30, 50, 2, 8},     // with pauses
}

// way is a way to serve the functions.
type way struct {
	name    string
	whole   bool // each replica has a GPU of its own
	least   int  // replicas of each function
	most    int
	explain string
}

var ways = []way{
	{"autoscaled shares", false, 0, 3, "replicas from zero on, as many as the load needs"},
	{"whole GPUs", true, 1, 1, "one replica of each function for all of the time, on a GPU of its own"},
	{"shares kept alive", false, 1, 3, "at least one replica of each function"},
}

// config returns the functions as gshare serve reads them.
func (w *way) config() string {
	var b strings.Builder
	for _, f := range functions {
		sm := f.sm
		if w.whole {
			sm = 100
		}
		fmt.Fprintf(&b, `---
apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: %s}
spec:
  slo: {latency: %s}
  template:
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - command: [sh, -c, 'exec gshare-model --name %s --weights %s %s']
        readinessProbe: {httpGet: {path: /v2/health/ready}}
  resources: {share: {sm: %d, memory: 2Gi}}
  scaling: {minReplicas: %d, maxReplicas: %d, requestsPerSecond: %g, window: 2s, keepShared: 2s}
`, f.name, f.slo, f.name, f.weights, f.kernel, sm, w.least, w.most, f.rate)
	}
	return b.String()
}

// gpus is the number of simulated GPUs: as many as the functions need without sharing.
var gpus = len(functions)

// write writes the configuration of the agent and the load.
func (d *demo) write(rates [][]float64) error {
	files := map[string]string{
		"node.yaml": "apiVersion: gshare.dev/v1alpha1\nkind: NodeConfiguration\ndirectory: " + d.file("run") +
			"\nsimulatedDevices: " + d.file("devices.yaml") + "\nsimulatedKernels: true\n",
		"devices.yaml": "devices:\n",
		"loads.yaml":   "",
	}
	for i := range gpus {
		files["devices.yaml"] += fmt.Sprintf("- {uuid: GPU-00000000-0000-0000-0000-%012x, model: A100, sms: 108, memoryMiB: 16384}\n", i)
	}
	for i, f := range functions {
		name := f.name + ".rates"
		files[name] = strings.Trim(strings.ReplaceAll(fmt.Sprint(rates[i]), " ", "\n"), "[]") + "\n"
		files["loads.yaml"] += fmt.Sprintf("- {function: %s, trace: %s, slo: %s, seed: %d}\n", f.name, d.file(name), f.slo, i+1)
	}
	for _, w := range ways {
		files[w.file()] = w.config()
	}
	for name, text := range files {
		if err := os.WriteFile(d.file(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (w *way) file() string { return strings.ReplaceAll(w.name, " ", "-") + ".yaml" }

func (d *demo) file(name string) string { return filepath.Join(d.dir, name) }

// readTrace returns the load of each function in requests a second. A second has the requests of a minute of the trace, in order, times the
// function's scale.
func readTrace(file string, seconds int) (rates [][]float64, err error) {
	packed, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	all, err := arrival.Read(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, f := range functions {
		if f.series >= len(all) {
			return nil, fmt.Errorf("%s: has %d functions, want more than %d", file, len(all), f.series)
		}
		s := all[f.series]
		if length := int(s.Length() / time.Minute); seconds < 1 || seconds > length {
			return nil, fmt.Errorf("--seconds %d: want 1 to %d, the minutes of the trace", seconds, length)
		}
		counts := make([]float64, seconds)
		for i, n := range s.Counts {
			if minute := int(time.Duration(i) * s.Step / time.Minute); minute < seconds {
				counts[minute] += n * f.scale
			}
		}
		rates = append(rates, counts)
	}
	return rates, nil
}
