package injection

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/test/fake/hook"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestCheck(t *testing.T) {
	mount := func(path string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v"}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: path}}
		}
	}
	host := func(path string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			mount("/data")(p)
			p.Spec.Volumes[0].HostPath = &v1.HostPathVolumeSource{Path: path}
		}
	}
	env := func(name string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Containers[0].Env = []v1.EnvVar{{Name: name, Value: "x"}} }
	}
	security := func(s v1.SecurityContext) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Containers[0].SecurityContext = &s }
	}
	add := func(c v1.Capability) func(*v1.Pod) {
		return security(v1.SecurityContext{Capabilities: &v1.Capabilities{Add: []v1.Capability{c}}})
	}
	beside := func(c v1.Container) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, c) }
	}
	for name, test := range map[string]struct {
		change func(*v1.Pod)
		safe   bool
	}{
		"nothing special":            {func(*v1.Pod) {}, true},
		"own environment":            {env("HOME"), true},
		"LD_PRELOAD":                 {env("LD_PRELOAD"), true}, // the loader takes the hook from the preload file beside it
		"LD_AUDIT":                   {env("LD_AUDIT"), false},
		"CUDA_VISIBLE_DEVICES":       {env("CUDA_VISIBLE_DEVICES"), true}, // ours replaces it
		"directory of the hook":      {env("GSHARE_DIR"), false},
		"log of the hook":            {env("GSHARE_LOG"), true},
		"stage of a pipeline":        {env("GSHARE_STAGE"), true}, // gshare-controller sets it
		"like one of a stage":        {env("GSHARE_STAGE_X"), false},
		"SMs of MPS":                 {env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), false},
		"other devices":              {env("NVIDIA_VISIBLE_DEVICES"), false},
		"other devices beside it":    {beside(v1.Container{Env: []v1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}}), false},
		"no devices beside it":       {beside(v1.Container{Env: []v1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}}}), true},
		"MPS beside it":              {beside(v1.Container{Env: []v1.EnvVar{{Name: "CUDA_MPS_PIPE_DIRECTORY", Value: "x"}}}), true}, // without a GPU
		"data":                       {mount("/data"), true},
		"above the preload file":     {mount("/etc"), true}, // mounted before ours
		"above everything":           {mount("/"), true},
		"preload file":               {mount("/etc/ld.so.preload"), false},
		"preload file, odd spelling": {mount("/etc/../etc//ld.so.preload/"), false},
		"socket":                     {mount("/run/gshare/token.sock"), false},
		"socket, by the link":        {mount("/var/run/gshare/token.sock"), false},
		"socket directory":           {mount("/run/gshare"), false},
		"library":                    {mount("/usr/lib/gshare"), false},
		"beside ours":                {mount("/run/gshare-x"), true},
		"model store":                {mount("/run/gshare-store/0"), false},
		"last message":               {func(p *v1.Pod) { p.Spec.Containers[0].TerminationMessagePath = "/run/gshare/policy" }, false},
		"socket beside it":           {beside(v1.Container{VolumeMounts: []v1.VolumeMount{{MountPath: "/run/gshare"}}}), true}, // nothing of ours is there
		"privileged":                 {security(v1.SecurityContext{Privileged: new(true)}), false},
		"privileged beside it":       {beside(v1.Container{SecurityContext: &v1.SecurityContext{Privileged: new(true)}}), false},
		"not privileged":             {security(v1.SecurityContext{Privileged: new(false)}), true},
		"mounts":                     {add("SYS_ADMIN"), false},
		"mounts, long name":          {add("CAP_SYS_ADMIN"), false},
		"all":                        {add("all"), false},
		"network":                    {add("NET_ADMIN"), true},
		"profiler":                   {add("SYS_PTRACE"), true},
		"host's processes":           {func(p *v1.Pod) { p.Spec.HostPID = true }, false},
		"host's shared memory":       {func(p *v1.Pod) { p.Spec.HostIPC = true }, false},
		"host's data":                {host("/srv/models"), true},
		"host's root":                {host("/"), false},
		"host's devices":             {host("/dev/nvidia0"), false},
		"host's InfiniBand":          {host("/dev/infiniband"), true},
		"host's POSIX shared memory": {host("/dev/shm"), false},
		"agent's directory":          {host("/var/lib/agent/grants"), false},
		"above the agent's":          {host("/var/lib"), false},
		"runtime's CDI files":        {host("/var/run/cdi"), false},
		"runtime's socket":           {host("/run/containerd/containerd.sock"), false},
		"socket of NRI":              {host("/var/run/nri/nri.sock"), false},
		"metrics agent's socket":     {host("/var/run/datadog"), true},
		"kubelet's sockets":          {host("/var/lib/kubelet/device-plugins/"), false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
			test.change(pod)
			refusal := Check(pod, "main", "/var/lib/agent")
			if (refusal == nil) != test.safe {
				t.Errorf("refused: %v; want safe %v", refusal, test.safe)
			}
			if refusal != nil && refusal.Reason != grant.UnsafePod {
				t.Errorf("reason %s", refusal.Reason)
			}
		})
	}
	if Check(&v1.Pod{}, "main", "/x") == nil {
		t.Error("a container that is not there is safe")
	}
}

func granted(class share.Isolation) *grant.Grant {
	s := share.Share{SMRequest: 240, SMLimit: 240, QuotaRequest: 400, QuotaLimit: 400, Memory: 8 << 30}
	return &grant.Grant{VGPUs: []kube.PlacedVGPU{{Slice: "GPU-1", Class: class, Share: s}}}
}

func TestEdits(t *testing.T) {
	h := Host{Hook: "/h/lib.so", Preload: "/h/preload"}
	edits, err := h.Edits(granted(share.MPS), "/run/gshare/grants/x", mps.Endpoint{PipeDir: "/run/gshare/mps/GPU-1/shares/x", SharedMemory: "/run/gshare/mps/shm/GPU-1/files"})
	if err != nil {
		t.Fatal(err)
	}
	var mounts []string
	for _, m := range edits.Mounts {
		mode := "rw"
		if slices.Contains(m.Options, "ro") {
			mode = "ro"
		}
		mounts = append(mounts, m.HostPath+" "+m.ContainerPath+" "+mode)
	}
	want := []string{
		"/run/gshare/grants/x /run/gshare ro", "/h/lib.so /usr/lib/gshare/libgshare.so ro", "/h/preload /etc/ld.so.preload ro",
		"/run/gshare/mps/GPU-1/shares/x /run/gshare-mps/GPU-1 ro", "/run/gshare/mps/shm/GPU-1/files /dev/shm rw",
	}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Error(diff)
	}
	wantEnv := []string{
		"CUDA_VISIBLE_DEVICES=GPU-1", "CUDA_MPS_PIPE_DIRECTORY=/run/gshare-mps/GPU-1", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=24",
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8633M",
	}
	if diff := cmp.Diff(wantEnv, edits.Env); diff != "" {
		t.Error(diff)
	}
}

// TestStores: a container whose pod declares weights gets the socket of each slice's model store, and no other does.
func TestStores(t *testing.T) {
	h := Host{Hook: "/h", Preload: "/p", Store: func(slice, namespace string) string { return "/stores/" + slice + "/" + namespace }}
	g := granted(share.MPS)
	g.Namespace = "team"
	g.VGPUs = append(g.VGPUs, kube.PlacedVGPU{Slice: "GPU-2", Class: share.MPS, Share: g.VGPUs[0].Share})
	declares := []share.Weights{{Digest: "sha256:0", Memory: share.MiB}}
	sockets := []string{"/stores/GPU-1/team /run/gshare-store/0", "/stores/GPU-2/team /run/gshare-store/1"}
	files := h
	files.StoreFiles = map[string]string{storeLibrary: "/hook/store-1.so", storeModule: "/hook/store-2.py"}
	for name, test := range map[string]struct {
		weights []share.Weights
		host    Host
		want    []string
	}{
		"declared": {declares, h, sockets},
		"with files": {
			declares, files,
			append(slices.Clone(sockets), "/hook/store-2.py /usr/lib/gshare/gshare_store.py", "/hook/store-1.so /usr/lib/gshare/libgshare_store.so"),
		},
		"not declared": {nil, files, nil},
		"no stores":    {declares, Host{Hook: "/h", Preload: "/p"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g.Weights = test.weights
			edits, err := test.host.Edits(g, "/d", mps.Endpoint{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range edits.Mounts {
				if strings.Contains(m.ContainerPath, "store") && slices.Contains(m.Options, "ro") {
					got = append(got, m.HostPath+" "+m.ContainerPath)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if has := slices.Contains(edits.Env, "GSHARE_STORE=/run/gshare-store/0/store.sock"); has != (test.want != nil) {
				t.Errorf("environment %q", edits.Env)
			}
			if has := slices.Contains(edits.Env, "GSHARE_STORE_LIBRARY=/usr/lib/gshare/libgshare_store.so"); has != (len(test.want) > len(sockets)) {
				t.Errorf("environment %q", edits.Env)
			}
		})
	}
}

// TestPriority: only best effort on an elastic slice goes behind others.
func TestPriority(t *testing.T) {
	for _, class := range []share.Isolation{share.Exclusive, share.MPS, share.Elastic} {
		for _, priority := range []share.Priority{share.SLO, share.BestEffort} {
			g := granted(class)
			g.VGPUs[0].Priority = priority
			edits, err := Host{Hook: "/h", Preload: "/p"}.Edits(g, "/d", mps.Endpoint{})
			if behind := slices.Contains(edits.Env, "CUDA_MPS_CLIENT_PRIORITY=1"); err != nil || behind != (class == share.Elastic && priority == share.BestEffort) {
				t.Errorf("%s in class %s: behind %v, %v", priority, class, behind, err)
			}
		}
	}
}

// TestWhole: a container with the device to itself is left alone, but for the directory that says whose grant it is.
func TestWhole(t *testing.T) {
	edits, err := Host{Hook: "/h", Preload: "/p"}.Edits(granted(share.Exclusive), "/d", mps.Endpoint{})
	if err != nil || len(edits.Mounts) != 1 || edits.Mounts[0].HostPath != "/d" || !cmp.Equal(edits.Env, []string{"CUDA_VISIBLE_DEVICES=GPU-1"}) {
		t.Errorf("%+v, %v", edits, err)
	}
}

// TestLibraries: a container with a shared slice gets no library of the driver that the hook does not limit, unless all are wanted.
func TestLibraries(t *testing.T) {
	const driver = `{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"GPU-a","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"}]}}],
"containerEdits":{"mounts":[{"hostPath":"/h/1","containerPath":"/usr/lib/libcuda.so.535.1"},{"hostPath":"/h/2","containerPath":"/usr/lib/libnvidia-opencl.so.535.1"},
{"hostPath":"/h/3","containerPath":"/usr/lib/libGLX_nvidia.so.535.1"},{"hostPath":"/h/4","containerPath":"/usr/lib/libnvidia-ml.so.535.1"}]}}`
	file := filepath.Join(t.TempDir(), "driver.json")
	if err := os.WriteFile(file, []byte(driver), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		class share.Isolation
		all   bool
		want  []string
	}{
		"shared":      {share.MPS, false, []string{"libcuda.so.535.1", "libnvidia-ml.so.535.1"}},
		"shared, all": {share.MPS, true, []string{"libcuda.so.535.1", "libnvidia-opencl.so.535.1", "libGLX_nvidia.so.535.1", "libnvidia-ml.so.535.1"}},
		"alone":       {share.Exclusive, false, []string{"libcuda.so.535.1", "libnvidia-opencl.so.535.1", "libGLX_nvidia.so.535.1", "libnvidia-ml.so.535.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			device := func(string) Device { return Device{UUID: "GPU-a"} }
			edits, err := Host{Driver: cdi.Driver(file), AllLibraries: test.all, Device: device}.Edits(granted(test.class), "/d", mps.Endpoint{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range edits.Mounts {
				if filepath.Dir(m.ContainerPath) == "/usr/lib" {
					got = append(got, filepath.Base(m.ContainerPath))
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDriverIsMissing(t *testing.T) {
	if _, err := (Host{Driver: cdi.Driver("/nowhere.yaml")}).Edits(granted(share.Exclusive), "/d", mps.Endpoint{}); err == nil {
		t.Error("a container without the driver's files is no error")
	}
}

// TestUnknownInstance: an instance of which only the name is known, or not even that, is not looked up among whole GPUs.
func TestUnknownInstance(t *testing.T) {
	for uuid, known := range map[string]bool{"GPU-1": true, "MIG-1": false, "": false} {
		t.Run(uuid, func(t *testing.T) {
			for _, class := range []share.Isolation{share.Exclusive, share.MPS} {
				h := Host{Hook: "/h", Preload: "/p", Device: func(string) Device { return Device{UUID: uuid} }}
				if edits, err := h.Edits(granted(class), "/d", mps.Endpoint{}); (err == nil) != known || !known && len(edits.Env) > 0 {
					t.Errorf("%q in class %s: %+v, %v", uuid, class, edits, err)
				}
			}
		})
	}
	h := Host{Hook: "/h", Preload: "/p", Device: func(string) Device { return Device{UUID: "MIG-1", MIG: &cdi.Instance{}} }}
	if edits, err := h.Edits(granted(share.Exclusive), "/d", mps.Endpoint{}); err != nil || !cmp.Equal(edits.Env, []string{"CUDA_VISIBLE_DEVICES=MIG-1"}) {
		t.Errorf("with its numbers: %+v, %v", edits, err)
	}
}

// TestInstall: a library that is mapped is never written to; a new one gets a new name.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "lib.so")
	install := func(content string) string {
		hook.Write(t, source)
		file, err := os.OpenFile(source, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteString(content)
		}
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		library, preload, err := Install(source, filepath.Join(dir, "hook"))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(preload); err != nil || string(text) != Library+"\n" {
			t.Errorf("preload file %q, %v", text, err)
		}
		return library
	}
	first := install("one")
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	again := install("one")
	after, err := os.Stat(again)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the same library was written anew (%v)", err)
	}
	if second := install("two"); second == first {
		t.Error("another library has the same name")
	}
	if text, err := os.ReadFile(first); err != nil || !strings.HasSuffix(string(text), "one") {
		t.Errorf("the first library has changed (%v)", err)
	}
	if _, _, err := Install(filepath.Join(dir, "missing"), dir); err == nil {
		t.Error("a missing library is no error")
	}
	if _, _, err := Install("/etc/passwd", dir); err == nil || !strings.Contains(err.Error(), "kubernetes.hook: /etc/passwd is not the hook") {
		t.Errorf("no hook: %v", err)
	}
}

// TestInstallStoreFiles: the files beside the hook are installed, and none is needed.
func TestInstallStoreFiles(t *testing.T) {
	source, dir := t.TempDir(), t.TempDir()
	hook := filepath.Join(source, "libgshare.so")
	if files, err := InstallStoreFiles(hook, dir); err != nil || len(files) != 0 {
		t.Errorf("without files: %v, %v", files, err)
	}
	for _, name := range []string{storeLibrary, storeModule} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := InstallStoreFiles(hook, dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for name, path := range files {
		if text, err := os.ReadFile(path); err != nil || string(text) != name || filepath.Ext(path) != filepath.Ext(name) {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if err := os.Mkdir(filepath.Join(source, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(source, storeLibrary)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(source, "dir"), filepath.Join(source, storeLibrary)); err != nil {
		t.Fatal(err)
	}
	if files, err := InstallStoreFiles(hook, dir); err == nil {
		t.Errorf("a library that cannot be read: %v", files)
	}
}
