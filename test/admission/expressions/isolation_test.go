package expressions_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/node/injection"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// seeds are values to try for the fields of a pod by which it could bypass its share.
var seeds = map[string][]string{
	"capability": {"ALL", "all", "SYS_ADMIN", "CAP_SYS_ADMIN", "SYS_MODULE", "MKNOD", "DAC_READ_SEARCH", "BPF", "SYS_RAWIO", "SYS_PTRACE", "NET_ADMIN", "IPC_LOCK"},
	"env": {
		"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_MIG_CONFIG_DEVICES",
		"CUDA_MPS_PIPE_DIRECTORY", "GSHARE_DIR", "GSHARE_FD", "GSHARE_LOG", "GSHARE_STORE", "GSHARE_ATTACH", "GSHARE_STAGE", "GSHARE_STAGES", "HOME",
	},
	"hostPath": {
		"/", "/dev", "/dev/nvidia0", "/dev/shm", "/dev/null", "/dev/infiniband/uverbs0", "/dev/gdrdrv", "/dev/hugepages", "/dev/fuse", "/dev/net/tun", "/proc/1/root",
		"/sys/fs/cgroup", "/etc/cdi", "/etc/localtime", "/var/lib/kubelet/pods", "/var/lib/models", "/run/cdi", "/run/gshare/grants", "/run/containerd/containerd.sock",
		"/run/docker.sock", "/run/nvidia/driver", "/run/systemd", "/run/dbus", "/run/k3s", "/run/k0s", "/run/podman", "/run/nri", "/run/crio/crio.sock", "/run/cri-dockerd.sock",
		"/run/datadog", "/run/spire/sockets", "/srv/models",
	},
	"mountPath": {
		injection.PreloadPath, injection.LibraryDir, injection.Library, injection.SocketDir, injection.SocketDir + "/policy", injection.MPSDir, injection.StoreDir,
		"/dev/shm", "/tmp", "/etc/ssl", "/a/../b", "/a..b",
	},
	"terminationMessagePath": {injection.PreloadPath, injection.SocketDir + "/policy", "/dev/termination-log"},
}

// neighbours returns a value with values that resemble it.
func neighbours(field, value string) []string {
	if field == "capability" || field == "env" {
		return []string{
			value, value + "S", value + "_X", "X" + value, "CAP_" + value, "CAP_CAP_" + value, value[:len(value)-1], strings.ToLower(value), value + "\n",
			value[:strings.LastIndexByte("_"+value, '_')],
		}
	}
	all := []string{value, value + "x", value + "/x", value + "/", value + "/.", value + "//y", "/." + value, "//" + value, "/x" + value, "/var" + value, value + "/..", "/usr" + value}
	for parent := value; parent != "" && parent != "/"; {
		parent = parent[:max(strings.LastIndexByte(parent, '/'), 0)]
		all = append(all, parent+"/", strings.TrimPrefix(parent, "/")+"/", parent+"/other")
	}
	return append(all, strings.ReplaceAll(value, "/run", "/run/."), strings.ToUpper(value), strings.TrimPrefix(value, "/"))
}

// places are the containers of a pod in which a field is tried.
var places = []string{"main", "log", "init", "model"}

// podWith returns a pod of four containers, of which main and the sidecar model have a share, with a field set in one of them.
func podWith(place, field, value string) *v1.Pod {
	container := func(name string, shares bool) v1.Container {
		c := v1.Container{Name: name, Image: "image", TerminationMessagePath: v1.TerminationMessagePathDefault}
		if shares {
			c.Resources.Limits = v1.ResourceList{kube.ResourceSM: resource.MustParse("10"), kube.ResourceMemory: resource.MustParse("100")}
		}
		if name == place {
			set(&c, field, value)
		}
		return c
	}
	p := &v1.Pod{Spec: v1.PodSpec{
		Containers:     []v1.Container{container("main", true), container("log", false)},
		InitContainers: []v1.Container{container("init", false), container("model", true)},
		Volumes:        []v1.Volume{{Name: "v"}},
	}}
	p.Spec.InitContainers[1].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	switch field {
	case "hostPath":
		p.Spec.Volumes[0].HostPath = &v1.HostPathVolumeSource{Path: value}
	case "hostPID":
		p.Spec.HostPID = true
	case "hostIPC":
		p.Spec.HostIPC = true
	}
	return p
}

func set(c *v1.Container, field, value string) {
	switch field {
	case "capability":
		c.SecurityContext = &v1.SecurityContext{Capabilities: &v1.Capabilities{Add: []v1.Capability{"CHOWN", v1.Capability(value)}, Drop: []v1.Capability{"ALL"}}}
	case "privileged":
		c.SecurityContext = &v1.SecurityContext{Privileged: new(value == "true")}
	case "env":
		c.Env = []v1.EnvVar{{Name: "PATH", Value: "/bin"}, {Name: value, Value: "x"}}
	case "devices":
		c.Env = []v1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: value}}
	case "devices from":
		c.Env = []v1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: value}}}}
	case "mountPath":
		c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/data"}, {Name: "v", MountPath: value}}
	case "terminationMessagePath":
		c.TerminationMessagePath = value
	}
}

// agentRefuses reports whether the agent refuses a container of the pod.
func agentRefuses(t *testing.T, p *v1.Pod) bool {
	t.Helper()
	directory, err := config.DefaultDirectory(0, "")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc([]string{"main", "model"}, func(name string) bool { return injection.Check(p, name, directory) != nil })
}

// tried returns the pods to try, by what is set in them.
func tried() map[string]*v1.Pod {
	values := map[string][]string{
		"nothing": {""}, "hostPID": {""}, "hostIPC": {""}, "privileged": {"true", "false"}, "devices": {"", "all", "none", "void", "Void", "0"}, "devices from": {"metadata.name"},
	}
	for field, list := range seeds {
		for _, value := range list {
			values[field] = append(values[field], neighbours(field, value)...)
		}
	}
	pods := map[string]*v1.Pod{}
	for field, list := range values {
		for _, value := range list {
			for _, place := range places {
				pods[fmt.Sprintf("%s %q in %s", field, value, place)] = podWith(place, field, value)
			}
		}
	}
	return pods
}

// TestIsolation: gshare-isolation refuses the pods that the agent refuses, and no others. Without any one of its rules it does not.
func TestIsolation(t *testing.T) {
	p, pods, refused := readPolicy(t, "isolation.yaml", "gshare-isolation"), tried(), 0
	for name, pod := range pods {
		want := agentRefuses(t, pod)
		if got := p.judge(t, pod, nil); (len(got) > 0) != want {
			t.Errorf("%s: the agent refuses it: %v; the policy says %q", name, want, got)
		}
		if want {
			refused++
		}
	}
	if refused < len(pods)/5 || refused > len(pods)*4/5 {
		t.Errorf("%d of %d pods are refused: the comparison shows little", refused, len(pods))
	}
	for i, rule := range p.Spec.Validations {
		without := &policy{ValidatingAdmissionPolicy: *p.DeepCopy()}
		without.Spec.Validations = slices.Delete(without.Spec.Validations, i, i+1)
		without.compile(t)
		if !slices.ContainsFunc(slices.Collect(maps.Values(pods)), func(pod *v1.Pod) bool { return agentRefuses(t, pod) && len(without.judge(t, pod, nil)) == 0 }) {
			t.Errorf("no pod needs the rule %s", rule.Expression)
		}
	}
}

// TestExpressions: the variables of gshare-isolation that share a name with an expression of package injection have its value.
func TestExpressions(t *testing.T) {
	p := readPolicy(t, "isolation.yaml", "gshare-isolation")
	for name, want := range map[string]*regexp.Regexp{
		"Capabilities": injection.Capabilities, "HostPaths": injection.HostPaths, "HarmlessDevices": injection.HarmlessDevices, "Choosers": injection.Choosers,
		"Reserved": injection.Reserved, "Unreserved": injection.Unreserved, "MountPaths": injection.MountPaths,
	} {
		if got := strings.Join(p.texts(t, name), ""); got != want.String() {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if got := p.texts(t, "NoGPUs"); !slices.Equal(got, injection.NoGPUs) {
		t.Errorf("NoGPUs is %q, want %q", got, injection.NoGPUs)
	}
}

// TestIsolationMessages: each refusal names what to remove.
func TestIsolationMessages(t *testing.T) {
	p := readPolicy(t, "isolation.yaml", "gshare-isolation")
	for _, test := range []struct{ field, value, want string }{
		{"capability", "SYS_ADMIN", "securityContext.capabilities: SYS_ADMIN can undo what limits the share; leave it out"},
		{"hostPath", "/dev/shm", "hostPath: a pod with a share may not have /dev/shm, the shared memory of others; use an emptyDir with medium: Memory"},
		{"hostPath", "/sys", "hostPath: a pod with a share may not have /sys, because what gives devices to containers is there; leave the volume out, gshare brings the devices"},
		{"devices", "all", "env: NVIDIA_VISIBLE_DEVICES would choose devices past gshare; leave it out and ask by gshare/vgpu, or write void"},
		{"env", "GSHARE_DIR", "env: GSHARE_DIR is set by gshare; leave it out and ask by gshare/sm and gshare/mem"},
		{"env", "LD_AUDIT", "env: LD_AUDIT loads code in front of gshare; leave it out"},
		{"mountPath", "/run/gshare", "volumeMounts: /run/gshare is reserved for gshare; mount the volume elsewhere, at a path without .."},
	} {
		t.Run(test.field+" "+test.value, func(t *testing.T) {
			if got := p.judge(t, podWith("main", test.field, test.value), nil); len(got) != 1 || got[0] != test.want {
				t.Errorf("%q", got)
			}
		})
	}
}
