package cgroup

import (
	"errors"
	"os"
	"strings"
	"testing"
)

const (
	uid    = "4a3c1b7e-9d2f-4e51-8a66-0b1c2d3e4f50"
	under  = "4a3c1b7e_9d2f_4e51_8a66_0b1c2d3e4f50"
	static = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
)

var (
	id    = strings.Repeat("0123456789abcdef", 4)
	other = strings.Repeat("f", 64)
)

func TestContainer(t *testing.T) {
	podSlice := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice"
	for name, test := range map[string]struct {
		text string
		want Container
	}{
		"v2, systemd, containerd":           {"0::" + podSlice + "/cri-containerd-" + id + ".scope\n", Container{uid, id}},
		"v2, systemd, CRI-O":                {"0::" + podSlice + "/crio-" + id + ".scope\n", Container{uid, id}},
		"v2, systemd, CRI-O, own child":     {"0::" + podSlice + "/crio-" + id + ".scope/container\n", Container{uid, id}},
		"v2, systemd, docker":               {"0::" + podSlice + "/docker-" + id + ".scope\n", Container{uid, id}},
		"v2, systemd in the container":      {"0::" + podSlice + "/cri-containerd-" + id + ".scope/init.scope\n", Container{uid, id}},
		"v2, guaranteed":                    {"0::/kubepods.slice/kubepods-pod" + under + ".slice/cri-containerd-" + id + ".scope\n", Container{uid, id}},
		"v2, cgroupfs":                      {"0::/kubepods/besteffort/pod" + uid + "/" + id + "\n", Container{uid, id}},
		"v2, cgroupfs, static pod":          {"0::/kubepods/pod" + static + "/" + id + "\n", Container{static, id}},
		"v2, cgroup root of the kubelet":    {"0::/kubelet/kubepods/burstable/pod" + uid + "/" + id + "\n", Container{uid, id}},
		"v2, kind":                          {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + under + ".slice/cri-containerd-" + id + ".scope\n", Container{uid, id}},
		"v2, kind seen from its host":       {"0::/docker/" + other + "/kubelet/kubepods/pod" + uid + "/" + id + "\n", Container{uid, id}},
		"v2, other cgroup namespace":        {"0::/../../kubepods/pod" + uid + "/" + id + "\n", Container{uid, id}},
		"v2, containerd without systemd":    {"0::/system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + id + "\n", Container{uid, id}},
		"v1, cgroupfs, all hierarchies":     {"12:cpu,cpuacct:/kubepods/burstable/pod" + uid + "/" + id + "\n1:name=systemd:/kubepods/burstable/pod" + uid + "/" + id + "\n", Container{uid, id}},
		"v1, systemd":                       {"4:memory:" + podSlice + "/docker-" + id + ".scope\n", Container{uid, id}},
		"hybrid, one hierarchy is the root": {"8:pids:/\n4:memory:/kubepods/pod" + uid + "/" + id + "\n0::/\n", Container{uid, id}},
		"pod made inside a container":       {"0::/kubepods/pod" + uid + "/" + id + "/kubepods/pod" + static + "/" + other + "\n", Container{uid, id}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(test.text)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := m.Container(); err != nil || got != test.want {
				t.Errorf("got %+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}

func TestNoContainer(t *testing.T) {
	for name, path := range map[string]string{
		"the root":              "/",
		"a session":             "/user.slice/user-1000.slice/session-3.scope",
		"docker without a pod":  "/system.slice/docker-" + id + ".scope",
		"the pod itself":        "/kubepods/pod" + uid,
		"conmon of CRI-O":       "/kubepods/pod" + uid + "/crio-conmon-" + id + ".scope",
		"a short ID":            "/kubepods/pod" + uid + "/" + id[:63],
		"a pod in another word": "/kubepods/tripod" + uid + "/" + id,
	} {
		t.Run(name, func(t *testing.T) {
			m := Membership{{Path: path}}
			if c, err := m.Container(); !errors.Is(err, ErrNoContainer) {
				t.Errorf("%s: got %+v, %v", name, c, err)
			}
		})
	}
}

func TestHierarchiesDisagree(t *testing.T) {
	m := Membership{{"memory", "/kubepods/pod" + uid + "/" + id}, {"cpu", "/kubepods/pod" + uid + "/" + other}}
	if c, err := m.Container(); err == nil || errors.Is(err, ErrNoContainer) {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"nothing\n", "0::\n", "0::relative\n", "1:memory\n"} {
		if m, err := Parse(text); err == nil {
			t.Errorf("%q: got %v", text, m)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, test := range []struct {
		path, parent string
		want         bool
	}{{"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/", "/a", false}, {"/a", "/", true}} {
		t.Run(test.path+" below "+test.parent, func(t *testing.T) {
			if got := Below(test.path, test.parent); got != test.want {
				t.Errorf("%s below %s: %v", test.path, test.parent, got)
			}
		})
	}
}

func TestOwnProcess(t *testing.T) {
	if m, err := Of(os.Getpid()); err != nil || len(m) == 0 {
		t.Errorf("got %v, %v", m, err)
	}
	if _, err := Of(-1); err == nil {
		t.Error("a process that cannot be has cgroups")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0::/kubepods/pod" + uid + "/" + id + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		if c, err := m.Container(); err == nil && (len(c.ID) != 64 || !strings.Contains(text, c.ID)) {
			t.Errorf("%q gave %+v", text, c)
		}
	})
}

// TestContainerPath: what a container has made below its cgroup is cut off.
func TestContainerPath(t *testing.T) {
	pod := "/kubepods/burstable/pod" + uid
	for path, want := range map[string]string{
		pod + "/" + id: pod + "/" + id, pod + "/" + id + "/own/child": pod + "/" + id, pod: "", "/": "", "/../../kubepods/pod" + uid + "/" + id: "",
	} {
		t.Run(path, func(t *testing.T) {
			m := Membership{{"memory", "/kubepods/pod" + uid + "/" + other}, {"", path}}
			if got, err := m.ContainerPath(); got != want || (err == nil) != (want != "") {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
	if got, err := (Membership{{"memory", pod + "/" + id}}).ContainerPath(); err == nil {
		t.Errorf("without version 2: %q", got)
	}
}
