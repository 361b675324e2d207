package standalone

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// askElastic is a share of class elastic.
func askElastic(name string, sm, limit int64) control.RunRequest {
	r := ask(sm, 100, 1024)
	r.Name, r.SMLimit, r.Isolation = name, &limit, "elastic"
	return r
}

func (n *Node) limitOf(name string) share.PerMille {
	for _, r := range n.Status().Runs {
		if r.Name == name {
			return r.VGPUs[0].SMLimit
		}
	}
	return 0
}

func TestElastic(t *testing.T) {
	n := newNode(t, tempDir(t))
	grant := mustAdmit(t, n, newProgram(t), askElastic("serve", 30, 60))
	if !strings.Contains(strings.Join(grant.Environment, " "), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60") {
		t.Errorf("the cap is not the limit: %v", grant.Environment)
	}
	trainer, slo := askElastic("train", 30, 60), askElastic("slo", 20, 30)
	slo.Class = "slo"
	for _, test := range []struct {
		request control.RunRequest
		behind  bool
	}{{trainer, true}, {slo, false}} {
		grant := mustAdmit(t, n, newProgram(t), test.request)
		if behind := slices.Contains(grant.Environment, "CUDA_MPS_CLIENT_PRIORITY=1"); behind != test.behind {
			t.Errorf("%s goes behind others: %v", test.request.Name, behind)
		}
	}
	if d := n.Status().Devices[0]; d.Class != "elastic" {
		t.Errorf("the device is %+v", d)
	}
	for _, r := range n.Status().Runs {
		if r.VGPUs[0].Device != "GPU-0" {
			t.Errorf("%s is on %s", r.Name, r.VGPUs[0].Device)
		}
	}
}

// TestClassOfASlice: a device changes its class only while it is empty.
func TestClassOfASlice(t *testing.T) {
	n := newNode(t, tempDir(t), func(o *Options) { o.Devices = o.Devices[:1] })
	first := newProgram(t)
	mustAdmit(t, n, first, askElastic("serve", 30, 60))
	if _, refusal := newProgram(t).admit(n, ask(20, 50, 1024)); refusal == nil || refusal.Field != share.FieldIsolation {
		t.Errorf("time sharing beside class elastic: %+v", refusal)
	}
	first.end()
	eventually(t, "the run has ended", func() bool { return len(n.Status().Runs) == 0 })
	mustAdmit(t, n, newProgram(t), ask(20, 50, 1024))
}

func TestSetLimit(t *testing.T) {
	n := newNode(t, tempDir(t))
	program := newProgram(t)
	mustAdmit(t, n, program, askElastic("serve", 30, 60))
	mustAdmit(t, n, newProgram(t), askElastic("twin", 10, 10))
	mustAdmit(t, n, newProgram(t), askElastic("twin", 10, 10))
	fixed := ask(30, 50, 1024)
	fixed.Name = "fixed"
	mustAdmit(t, n, newProgram(t), fixed)
	for name, test := range map[string]struct {
		user uint32
		ask  control.LimitRequest
		kind control.RefusalKind
		want string
	}{
		"below the request": {program.UID, control.LimitRequest{Run: "serve", SMLimit: new(int64(29))}, control.Invalid, "not between the request of 30% and the limit of 60%"},
		"above the cap":     {program.UID, control.LimitRequest{Run: "serve", SMLimit: new(int64(61))}, control.Invalid, "not between"},
		"absurd":            {program.UID, control.LimitRequest{Run: "serve", SMLimit: new(int64(1 << 62))}, control.Invalid, "not between"},
		"class mps":         {program.UID, control.LimitRequest{Run: "fixed", SMLimit: new(int64(30))}, control.Invalid, "only shares of class elastic"},
		"nobody":            {program.UID, control.LimitRequest{Run: "nobody", SMLimit: new(int64(30))}, control.NotFound, "no run has"},
		"two of a name":     {program.UID, control.LimitRequest{Run: "twin", SMLimit: new(int64(10))}, control.NotFound, "more than one run"},
		"another user":      {program.UID + 7, control.LimitRequest{Run: "serve", SMLimit: new(int64(40))}, control.Forbidden, "another user's"},
	} {
		t.Run(name, func(t *testing.T) {
			if refusal := n.granter.setLimit(test.user, test.ask); refusal == nil || refusal.Kind != test.kind || !strings.Contains(refusal.Reason, test.want) {
				t.Errorf("%s: %+v", name, refusal)
			}
		})
	}
	if limit := n.limitOf("serve"); limit != 600 {
		t.Errorf("a refusal changed the limit to %v", limit)
	}
	for _, percent := range []int64{30, 60, 45} { // down, up again, between
		if refusal := n.granter.setLimit(program.UID, control.LimitRequest{Run: "serve", SMLimit: new(int64(percent))}); refusal != nil {
			t.Errorf("%d: %+v", percent, refusal)
		}
	}
	if limit := n.limitOf("serve"); limit != 450 {
		t.Errorf("the limit is %v", limit)
	}
}

// TestLimitOutlivesTheAgent: the next agent takes the moved limit over, and the cap stays what it was.
func TestLimitOutlivesTheAgent(t *testing.T) {
	dir := tempDir(t)
	n := newNode(t, dir)
	program := newProgram(t)
	mustAdmit(t, n, program, askElastic("serve", 30, 60))
	if refusal := n.granter.setLimit(program.UID, control.LimitRequest{Run: "serve", SMLimit: new(int64(40))}); refusal != nil {
		t.Fatal(refusal)
	}
	n.Close()
	n = newNode(t, dir)
	if limit := n.limitOf("serve"); limit != 400 {
		t.Errorf("the limit is %v", limit)
	}
	if refusal := n.granter.setLimit(program.UID, control.LimitRequest{Run: "serve", SMLimit: new(int64(60))}); refusal != nil {
		t.Error(refusal)
	}
}

// TestSetQuota: the user of a run gives it another quota, up to its own. The next agent takes it over.
func TestSetQuota(t *testing.T) {
	dir := tempDir(t)
	n := newNode(t, dir)
	program := newProgram(t)
	part := ask(30, 50, 1024)
	part.Name, part.QuotaLimit = "part", new(int64(80))
	mustAdmit(t, n, program, part)
	mustAdmit(t, n, newProgram(t), askElastic("serve", 30, 60))
	for name, test := range map[string]struct {
		user uint32
		ask  control.LimitRequest
		kind control.RefusalKind
		want string
	}{
		"above its own": {program.UID, control.LimitRequest{Run: "part", Quota: new(int64(51))}, control.Invalid, "51% is not between 1% and the 50% that the run began with"},
		"none":          {program.UID, control.LimitRequest{Run: "part", Quota: new(int64(0))}, control.Invalid, "not between"},
		"absurd":        {program.UID, control.LimitRequest{Run: "part", Quota: new(int64(1 << 62))}, control.Invalid, "not between"},
		"class elastic": {program.UID, control.LimitRequest{Run: "serve", Quota: new(int64(30))}, control.Invalid, "only the quota of shares of class mps"},
		"another user":  {program.UID + 7, control.LimitRequest{Run: "part", Quota: new(int64(30))}, control.Forbidden, "another user's"},
		"nothing":       {program.UID, control.LimitRequest{Run: "part"}, control.Invalid, "want one of"},
		"both":          {program.UID, control.LimitRequest{Run: "part", Quota: new(int64(30)), SMLimit: new(int64(30))}, control.Invalid, "want one of"},
	} {
		t.Run(name, func(t *testing.T) {
			if refusal := n.granter.setLimit(test.user, test.ask); refusal == nil || refusal.Kind != test.kind || !strings.Contains(refusal.Reason, test.want) {
				t.Errorf("%+v", refusal)
			}
		})
	}
	has := func(quota, limit share.PerMille) {
		t.Helper()
		for _, r := range n.Status().Runs {
			if v := r.VGPUs[0]; r.Name == "part" && (v.Quota != quota || v.QuotaLimit != limit) {
				t.Errorf("it has %v up to %v, want %v up to %v", v.Quota, v.QuotaLimit, quota, limit)
			}
		}
	}
	has(500, 800) // a refusal changes nothing
	set := func(percent int64) {
		t.Helper()
		if refusal := n.granter.setLimit(program.UID, control.LimitRequest{Run: "part", Quota: &percent}); refusal != nil {
			t.Error(refusal)
		}
	}
	set(10)
	has(100, 100)
	n.Close()
	n = newNode(t, dir)
	has(100, 100)
	set(50)
	has(500, 800)
}

func TestLimitOverHTTP(t *testing.T) {
	n := newNode(t, tempDir(t))
	mustAdmit(t, n, newProgram(t), askElastic("serve", 30, 60))
	client := overHTTP(t, n)
	for body, want := range map[string]int{
		`{"run": "serve", "smLimit": 50}`: http.StatusOK,
		`{"run": "serve", "sm": 50}`:      http.StatusBadRequest,
		`{`:                               http.StatusBadRequest,
	} {
		t.Run(body[:min(30, len(body))], func(t *testing.T) {
			response, err := client.Post("http://agent"+control.LimitPath, "", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s: %s", body, response.Status)
			}
		})
	}
	if limit := n.limitOf("serve"); limit != 500 {
		t.Errorf("the limit is %v", limit)
	}
}
