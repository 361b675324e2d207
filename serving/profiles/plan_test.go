package profiles

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiler"
)

// TestPlanOfProfiledFunction: what a profile recommends to its function changes nothing of what is measured. Otherwise it would be measured again without
// end.
func TestPlanOfProfiledFunction(t *testing.T) {
	template := someProfile()
	for name, change := range map[string]func(*api.GPUFunction){
		"says only its objective": func(*api.GPUFunction) {},
		"names the profile":       func(f *api.GPUFunction) { f.Spec.ProfileRef = &api.ProfileReference{Name: template.Name} },
		"has a share of its own": func(f *api.GPUFunction) {
			f.Spec.Resources.Share = &api.Share{SM: new(int64(50)), Memory: "1Gi"}
			f.Spec.Scaling.RequestsPerSecond = 10
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &api.GPUFunction{Spec: api.GPUFunctionSpec{SLO: sloOf(template), Protocol: api.OIP, Template: template.Spec.Template}}
			f.Namespace, f.Name = template.Namespace, template.Name
			change(f)
			before, err := planOf(template, f)
			if err != nil {
				t.Fatal(err)
			}
			f.Status.Profiled = &api.ProfileRecommendation{SM: 20, Quota: 100, Memory: "384Mi", MaxBatch: 4, RequestsPerSecond: 12}
			after, err := planOf(template, f)
			if err != nil || after.hash != before.hash {
				t.Errorf("another plan, %v: batches up to %d, before %d", err, after.search.MaxBatch, before.search.MaxBatch)
			}
			f.Spec.SLO.Latency = "40ms"
			if other, err := planOf(template, f); err != nil || other.hash == before.hash {
				t.Errorf("the objective does not count: %v", err)
			}
		})
	}
}

// TestRequestOfFunction: a profile without a request of its own asks what the function says, and measures again when that changes.
func TestRequestOfFunction(t *testing.T) {
	p := someProfile()
	f := &api.GPUFunction{Spec: api.GPUFunctionSpec{SLO: sloOf(p), Protocol: api.HTTP, Template: p.Spec.Template}}
	f.Namespace, f.Name = p.Namespace, p.Name
	plans := map[string]*plan{}
	for name, change := range map[string]func(){
		"none": func() { f.Spec.Request = nil },
		"body": func() {
			f.Spec.Request = &api.ProfileRequest{Path: "/predict", Body: `{"x": 1}`, Headers: []api.RequestHeader{{Name: "accept", Value: "text/plain"}}}
		},
		"ConfigMap": func() {
			f.Spec.Request = &api.ProfileRequest{Path: "/predict", ContentType: "image/png", BodyFrom: &api.BodyReference{ConfigMap: "samples", Key: "cat.png"}}
		},
	} {
		change()
		made, err := planOf(p, f)
		if err != nil {
			t.Fatal(err)
		}
		plans[name] = made
	}
	if r := plans["none"].request; r.Method != "GET" || r.Path != "/" {
		t.Errorf("%+v", r)
	}
	if r := plans["body"].request; r.Method != "POST" || r.Path != "/predict" || string(r.Body) != `{"x": 1}` || r.Header.Get("Accept") != "text/plain" || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%+v", r)
	}
	if r := plans["ConfigMap"].request; r.Method != "POST" || r.BodyFile != bodyFolder+"/samples/cat.png" || r.Header.Get("Content-Type") != "image/png" {
		t.Errorf("%+v", r)
	}
	if plans["none"].hash == plans["body"].hash || plans["body"].hash == plans["ConfigMap"].hash {
		t.Error("the request does not count")
	}
	p.Spec.Request.Path = "/own"
	if made, err := planOf(p, f); err != nil || made.request.Path != "/own" || made.body != nil {
		t.Errorf("%+v, %v", made.request, err)
	}
}

// TestLongRequest: what is too long for the environment of a client is refused, and what is not refused can be read there.
func TestLongRequest(t *testing.T) {
	headers := func(value string) (all []api.RequestHeader) {
		for n := range 16 {
			all = append(all, api.RequestHeader{Name: fmt.Sprint("X-", n), Value: strings.Repeat(value, 1024)})
		}
		return all
	}
	for name, test := range map[string]struct {
		request api.ProfileRequest
		good    bool
	}{
		"longest of ASCII":          {api.ProfileRequest{Body: strings.Repeat("$", 16384), Path: "/" + strings.Repeat("$", 2047), Headers: headers("$")}, true},
		"all of four bytes":         {api.ProfileRequest{Body: strings.Repeat("\U0001f600", 16384), Headers: headers("a")}, false},
		"headers that JSON escapes": {api.ProfileRequest{Body: strings.Repeat("a", 16384), Headers: headers("<")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := someProfile(func(p *api.GPUProfile) { p.Spec.Protocol, p.Spec.Request = api.HTTP, test.request })
			p.Status.Target, p.Status.Attempt = &api.ProfileTarget{Number: 1, SM: 10, Quota: 100}, &api.ProfileAttempt{Batch: 1}
			made, err := planOf(p, nil)
			if (err == nil) != test.good {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			job := clientPod(p, made, &v1.Pod{}, "10.0.0.1:8080", "image").Spec.Containers[0].Env[0]
			if _, err := profiler.DecodeJob([]byte(strings.ReplaceAll(job.Value, "$$", "$"))); err != nil || len(job.Name)+len(job.Value) >= 128<<10 {
				t.Errorf("%v: %d bytes", err, len(job.Value))
			}
		})
	}
}

// TestBody: the client has a body that is in a ConfigMap as a file, and no other has a volume.
func TestBody(t *testing.T) {
	p := someProfile(func(p *api.GPUProfile) {
		p.Spec.Protocol, p.Spec.Request.BodyFrom = api.HTTP, &api.BodyReference{ConfigMap: "samples", Key: "cat.png"}
	})
	p.Status.Target, p.Status.Attempt = &api.ProfileTarget{Number: 1, SM: 10, Quota: 100}, &api.ProfileAttempt{Batch: 1}
	made, err := planOf(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := clientPod(p, made, &v1.Pod{}, "10.0.0.1:8080", "image")
	if v := pod.Spec.Volumes; len(v) != 1 || v[0].ConfigMap == nil || v[0].ConfigMap.Name != "samples" || len(v[0].ConfigMap.Items) != 1 || v[0].ConfigMap.Items[0].Path != "cat.png" {
		t.Errorf("%+v", v)
	}
	job, err := profiler.DecodeJob([]byte(strings.ReplaceAll(pod.Spec.Containers[0].Env[0].Value, "$$", "$")))
	if m := pod.Spec.Containers[0].VolumeMounts; err != nil || len(m) != 1 || !m[0].ReadOnly || job.Request.BodyFile != m[0].MountPath+"/cat.png" {
		t.Errorf("%+v, %v", m, err)
	}
	p.Spec.Request.BodyFrom = nil
	if made, err = planOf(p, nil); err != nil {
		t.Fatal(err)
	}
	if pod := clientPod(p, made, &v1.Pod{}, "10.0.0.1:8080", "image"); len(pod.Spec.Volumes) != 0 {
		t.Errorf("%+v", pod.Spec.Volumes)
	}
}
