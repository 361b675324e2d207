// Package keda_test lets KEDA's own implementation of the trigger external-push query serving/keda. It is a separate module, so that gshare
// does not depend on what KEDA depends on. Its first build takes minutes.
package keda_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers"
	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
	v2 "k8s.io/api/autoscaling/v2"
)

// startScaler starts the server that KEDA queries. It returns the server's address, and where to write the load that the server is to report.
func startScaler(t *testing.T) (address string, load io.Writer) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "scaler")
	build := exec.Command("go", "build", "-o", program, "./hack/kedascaler")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	command := exec.Command(program)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // the program ends with its input
		if err := command.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), in
}

// trigger returns KEDA's configuration of a trigger for a function.
func trigger(address, namespace, function string) *scalersconfig.ScalerConfig {
	return &scalersconfig.ScalerConfig{
		ScalableObjectName: "resnet50", ScalableObjectNamespace: namespace, ScalableObjectType: "ScaledObject", TriggerType: "external-push",
		TriggerMetadata: map[string]string{"scalerAddress": address, "function": function},
	}
}

func TestExternalPush(t *testing.T) {
	address, load := startScaler(t)
	say := func(line any) {
		t.Helper()
		if _, err := fmt.Fprintln(load, line); err != nil {
			t.Fatal(err)
		}
	}
	scaler, err := scalers.NewExternalPushScaler(trigger(address, "ml", "resnet50"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = scaler.Close(context.Background()) }()

	specs := scaler.GetMetricSpecForScaling(t.Context())
	if len(specs) != 1 || specs[0].External.Metric.Name != "s0-replicas" || specs[0].External.Target.Type != v2.AverageValueMetricType ||
		specs[0].External.Target.AverageValue.MilliValue() != 1000 {
		t.Fatalf("metrics %+v", specs)
	}
	metric := specs[0].External.Metric.Name
	// expect waits until KEDA gets the given number of replicas.
	expect := func(when string, want int64) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			values, active, err := scaler.GetMetricsAndActivity(t.Context(), metric)
			if err != nil || len(values) != 1 {
				t.Fatalf("%s: %v, error %v", when, values, err)
			}
			if values[0].Value.Value() == want && active == (want > 0) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v replicas, active %v, want %d", when, values[0].Value.Value(), active, want)
			}
		}
	}
	expect("without load", 0)

	ctx, stop := context.WithCancel(t.Context())
	active, ended := make(chan bool), make(chan struct{})
	go func() { defer close(ended); scaler.Run(ctx, active) }()
	defer func() {
		stop()
		for range active {
		}
		<-ended
	}()
	pushed := func(when string, want bool) {
		t.Helper()
		select {
		case got := <-active:
			if got != want {
				t.Fatalf("%s: KEDA was told %v", when, got)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: KEDA was told nothing", when)
		}
	}
	pushed("at first", false)
	asked := time.Now()
	say("request")
	pushed("at a request", true)
	t.Logf("KEDA was told of the first request after %v", time.Since(asked))
	expect("at a request", 1)
	say(35)
	expect("at 35 requests per second", 4)
	say(0)
	pushed("without load again", false)
	expect("without load again", 0)
}

// TestRefused: for anything that is not a function that KEDA may scale, KEDA gets an error and leaves the number of replicas unchanged.
func TestRefused(t *testing.T) {
	address, _ := startScaler(t)
	for name, test := range map[string]struct{ namespace, function, want string }{
		"a function of another namespace": {"other", "resnet50", "scaling.autoscaler External"},
		"no function":                     {"ml", "", "no key function"},
	} {
		t.Run(name, func(t *testing.T) {
			scaler, err := scalers.NewExternalPushScaler(trigger(address, test.namespace, test.function))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = scaler.Close(context.Background()) }()
			if values, active, err := scaler.GetMetricsAndActivity(t.Context(), "s0-replicas"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, active %v, error %v, want %q", values, active, err, test.want)
			}
		})
	}
}
