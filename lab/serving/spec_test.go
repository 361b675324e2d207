package serving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	sharesTable = "1,10,0.060,16\n1,50,0.020,50\n4,10,0.150,26\n4,50,0.045,88\n"
	slicesTable = "Mig,Batch,Workload,Throughput,Latency\n1,4,1,100,0.04\n1,4,2,60,0.06\n2,4,1,200,0.02\n4,4,1,400,0.01\n7,4,1,0,0\n"
	smallWorld  = `{
		"gpus": 2, "gpuMemoryMiB": 16384, "transfer": 0.01, "prices": {"nanoPerSliceSecond": 5},
		"mig": {"model": "A100-80GB", "geometries": {"g": [{"count": 1, "profiles": ["2g.20gb", "1g.10gb"]}]}},
		"functions": [{"name": "f", "slo": 0.2, "loadCold": 2, "loadWarm": 0.5, "memoryMiB": 2000, "shares": "shares", "nodes": [
			{"name": "a", "table": "slices", "batch": 4, "memoryMiB": 8000},
			{"name": "b", "table": "slices", "batch": 4, "memoryMiB": 8000}]}]}`
)

func openTable(name string) (string, error) {
	switch name {
	case "shares":
		return sharesTable, nil
	case "slices":
		return slicesTable, nil
	}
	return "", fmt.Errorf("no file %s", name)
}

func steady(counts ...float64) Replay {
	return Replay{Series: []arrival.Series{{Name: "s", Step: time.Second, Counts: counts}}, Scale: 1, Seed: 1}
}

func build(text string, l Replay) (*Input, error) {
	s := Spec{Platform: planning.DefaultPlatform()}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	return s.Build(l, openTable)
}

func TestBuild(t *testing.T) {
	in, err := build(smallWorld, steady(5, 5, 5))
	if err != nil {
		t.Fatal(err)
	}
	f := &in.Functions[0]
	if in.Until != 3*time.Second || len(f.Points) != 4 || f.SLO != 200*ms || len(in.MIG.GPUs) != 1 {
		t.Errorf("%+v", in)
	}
	if n := f.Graph.Nodes[1]; n.After[0] != "a" || n.Times["1g.10gb"] != 40*ms || n.Times["2g.20gb"] != 20*ms || n.Times["7g.80gb"] != 0 {
		t.Errorf("%+v", n)
	}
	for _, policy := range []string{"gshare", "lazy", "pipelined"} {
		run(t, in, policy)
	}
}

// sloScale counts from the time of all components on the smallest slices that hold them: 2 x 40 ms.
func TestSLOScale(t *testing.T) {
	in, err := build(replaced(`"slo": 0.2`, `"sloScale": 1.5`), steady(1))
	if err != nil || in.Functions[0].SLO != 120*ms {
		t.Errorf("%v, %v", in, err)
	}
}

// TestReplicasSpec: what a specification leaves out is as in a GPUFunction.
func TestReplicasSpec(t *testing.T) {
	in, err := build(replaced(`"slo": 0.2`, `"slo": 0.2, "replicas": {"sm": 12, "quota": 40, "takes": 0.01, "requestsPerSecond": 35}`), steady(1))
	if err != nil {
		t.Fatal(err)
	}
	want := Replicas{
		Share: share.Share{SMRequest: 120, SMLimit: 120, QuotaRequest: 400, QuotaLimit: 400, Memory: 2000 * share.MiB}, Rate: 35, Takes: 10 * ms,
		Policy: scaling.Policy{Window: 10 * time.Second, Out: 1, In: 5, Max: 10, SharedFor: 2 * time.Minute, Reserve: true},
	}
	got := *in.Functions[0].Replicas
	got.Policy.Predict = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	run(t, in, "replicas")
}

func TestTurnsSpec(t *testing.T) {
	in, err := build(replaced(`"slo": 0.2`, `"slo": 0.2, "turns": {"slice": "a", "takes": 0.01, "begins": [2, 3], "leaves": [0.5]}`), steady(1))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *in.Functions[0].Turns, (Turns{Slice: "a", Takes: 10 * ms, Begins: []time.Duration{2 * time.Second, 3 * time.Second}, Leaves: []time.Duration{500 * ms}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	run(t, in, "turns")
}

func replaced(old, new string) string {
	for i := range smallWorld {
		if len(smallWorld) >= i+len(old) && smallWorld[i:i+len(old)] == old {
			return smallWorld[:i] + new + smallWorld[i+len(old):]
		}
	}
	panic(old + " is not there")
}

func TestBuildRefuses(t *testing.T) {
	for field, c := range map[string][2]string{
		"gpuMemoryMiB":                     {`"gpuMemoryMiB": 16384`, `"gpuMemoryMiB": -1`},
		"gpus":                             {`"gpus": 2`, `"gpus": 1000000`},
		"mig.geometries.g[0].count":        {`"count": 1`, `"count": 0`},
		"functions[0].slo":                 {`"slo": 0.2`, `"slo": -1`},
		"functions[0].sloScale":            {`"slo": 0.2`, `"slo": 0.2, "sloScale": 2`},
		"functions[0].loadWarm":            {`"loadWarm": 0.5`, `"loadWarm": 9`},
		"functions[0].memoryMiB":           {`"memoryMiB": 2000`, `"memoryMiB": 9000000000000`},
		"functions[0].series, shift":       {`"slo": 0.2`, `"slo": 0.2, "shift": 1`},
		"functions[0].scale":               {`"slo": 0.2`, `"slo": 0.2, "scale": -3`},
		"functions[0].shares.csv":          {`"shares": "shares"`, `"shares": "slices"`},
		"functions[0].nodes[0].memoryMiB":  {`8000},`, `0},`},
		"functions[0].nodes[0].batch":      {`"batch": 4, "memoryMiB": 8000},`, `"batch": 3, "memoryMiB": 8000},`},
		"functions[0].nodes[0].mig.model":  {`"model": "A100-80GB"`, `"model": "T4"`},
		"functions[0].nodes":               {`"name": "a",`, `"name": "a", "after": ["b"],`},
		"functions[0].replicas.takes":      {`"slo": 0.2`, `"slo": 0.2, "replicas": {"sm": 12, "takes": -1}`},
		"functions[0].replicas.keepShared": {`"slo": 0.2`, `"slo": 0.2, "replicas": {"sm": 12, "keepShared": -1}`},
		"functions[0].turns.leaves":        {`"slo": 0.2`, `"slo": 0.2, "turns": {"slice": "a", "takes": 0.1, "begins": [1], "leaves": [-1]}`},
		"functions[0].turns.slice":         {`"slo": 0.2`, `"slo": 0.2, "turns": {"takes": 0.1}`},
		"functions[0].transfer":            {`"transfer": 0.01`, `"transfer": -2`},
	} {
		t.Run(field, func(t *testing.T) {
			_, err := build(replaced(c[0], c[1]), steady(1))
			var got *share.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%s: %v, want an error of %s", c[1], err, field)
			}
		})
	}
	for field, l := range map[string]Replay{
		"trace":          {Scale: 1},
		"scale":          {Series: steady(9e6).Series, Scale: 9, Until: 10 * time.Hour},
		"duration":       {Series: steady(1).Series, Scale: 1, Until: 48 * time.Hour},
		"mig.geometries": {Series: steady(1).Series, Scale: 1, Geometry: "x"},
	} {
		t.Run(field, func(t *testing.T) {
			_, err := build(smallWorld, l)
			var got *share.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%v, want an error of %s", err, field)
			}
		})
	}
}

func TestTablesRefuse(t *testing.T) {
	for text, field := range map[string]string{
		"":                          "csv",
		"1,10,x,3\n":                "line 1, seconds",
		"1,10,0.1\n":                "csv",
		"1,10,NaN,3\n":              "line 1, seconds",
		"1,10,0.1,3\n1,999,0.1,3\n": "line 2.resource.sm, quota",
		"0,10,0.1,3\n":              "line 1.batch",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ReadShares(text, "m", "GPU")
			var got *share.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%q: %v, want an error of %s", text, err, field)
			}
		})
	}
	for text, field := range map[string]string{
		"a,b,c,d,e\n":                 "csv",
		"a,b,c,d,e\n1,4,2,60,0.06\n":  "line 2",
		"a,b,c,d,e\n9,4,1,60,0.06\n":  "line 2",
		"a,b,c,d,e\n1,4,1,-60,0.06\n": "line 2, requests a second",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := ReadSlices(text)
			var got *share.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%q: %v, want an error of %s", text, err, field)
			}
		})
	}
}

// Whatever is read either names a field or can be simulated.
func FuzzWorld(f *testing.F) {
	f.Add(smallWorld, "5\n0\n9\n")
	f.Add(replaced(`"slo": 0.2`, `"sloScale": 1.5, "shift": 0.5, "series": -1`), "1\n")
	f.Add(replaced(`"gpus": 2`, `"gpus": 0`), "1\n2\n3\n")
	f.Fuzz(func(t *testing.T, world, rates string) {
		if len(world) > 4096 || len(rates) > 256 {
			return
		}
		series, err := arrival.Read(rates)
		if err != nil || series[0].Rate()*series[0].Length().Seconds() > 500 {
			return
		}
		in, err := build(world, Replay{Series: series, Scale: 1, Until: 4 * time.Second, Seed: 1})
		if err != nil || len(in.Arrivals) > 500 || len(in.Functions) > 4 || in.GPUs > 16 || len(in.MIG.GPUs) > 8 {
			return
		}
		for _, policy := range []string{"gshare", "lazy", "pipelined", "pamba"} {
			r, err := Run(context.Background(), in, policy)
			if err == nil && (r.Requests != len(in.Arrivals) || r.Violations > r.Requests) {
				t.Fatalf("%s: %+v", policy, r)
			}
		}
	})
}

func FuzzTables(f *testing.F) {
	f.Add(sharesTable)
	f.Add(slicesTable)
	f.Fuzz(func(t *testing.T, text string) {
		if points, err := ReadShares(text, "m", "GPU"); err == nil && len(points) > 0 {
			surface(points[:1]).Latency(1, 500)
		}
		_, _ = ReadSlices(text)
	})
}

// BenchmarkRequests simulates a million requests; the target is 10 s.
func BenchmarkRequests(b *testing.B) {
	counts := bursts(600, 1)
	for i := range counts {
		counts[i] *= 9
	}
	in := onGPUs(16, 1, counts)
	for _, policy := range []string{"gshare", "lazy"} {
		b.Run(policy, func(b *testing.B) {
			for b.Loop() {
				run(b, in, policy)
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/float64(len(in.Arrivals))*1e6, "s/million")
		})
	}
}
