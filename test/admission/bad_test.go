package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// digest is the digest of some weights. nine declares nine weights, one more than a pod may declare.
var (
	digest = "sha256:" + strings.Repeat("0a", 32)
	nine   = func() string {
		var list []string
		for i := range 9 {
			list = append(list, fmt.Sprintf("sha256:%064x=1Mi", i))
		}
		return strings.Join(list, ",")
	}()
)

// badPods violate one rule each. The API server's refusal begins with the name of the field and ends with how to fix it.
var badPods = map[string]struct {
	pod        *v1.Pod
	field, fix string
}{
	"overhead":            {pod(heavy), "spec.overhead", "take them out of the RuntimeClass"},
	"init container":      {pod(initially(container("init", "sm=1", "mem=1"))), "gshare/sm", "restartPolicy: Always"},
	"only an init":        {plain(initially(container("init", "sm=1", "mem=1"))), "gshare/sm", "restartPolicy: Always"},
	"unknown":             {pod(limits("smm=1")), "gshare/smm", "write gshare/sm,"},
	"no sm":               {pod(limits("sm=")), "gshare/sm", "write 1 to 6400"},
	"sm 0":                {pod(limits("sm=0")), "gshare/sm", "write 1 to 6400"},
	"sm too large":        {pod(limits("sm=6500", "vgpu=65")), "gshare/sm", "write 1 to 6400"},
	"no mem":              {pod(limits("mem=")), "gshare/mem", "write 1 to"},
	"mem in bytes":        {pod(limits("mem=8Gi")), "gshare/mem", "8192, not 8Gi"},
	"size without a unit": {pod(limits("mem="), says("mem", "16")), "gshare.dev/mem", "such as 16Gi"},
	"size in bytes":       {pod(limits("mem="), says("mem", "16GB")), "gshare.dev/mem", "such as 16Gi"},
	"size with a point":   {pod(limits("mem="), says("mem", "1.5Gi")), "gshare.dev/mem", "1536Mi"},
	"size too large":      {pod(limits("mem="), says("mem", "1025Ti")), "gshare.dev/mem", "at most 1024Ti"},
	"size beside mem":     {pod(says("mem", "16Gi")), "gshare.dev/mem", "leave gshare/mem out"},
	"size uneven":         {pod(limits("sm=300", "mem="), says("mem", "16Gi")), "gshare/mem", "write a multiple of gshare/vgpu"},
	"second without mem": {pod(another(container("second", "sm=1"))),
		"gshare/mem", "write 1 to"},
	"sidecar without mem": {pod(sidecar(container("second", "sm=1"))),
		"gshare/mem", "write 1 to"},
	"vgpu 0":             {pod(limits("vgpu=0")), "gshare/vgpu", "write 1 to 64"},
	"65 vgpu":            {pod(limits("sm=65", "mem=65", "vgpu=65")), "gshare/vgpu", "write 1 to 64"},
	"65 vgpu together":   {pod(limits("sm=6400", "mem=64", "vgpu=64"), another(container("second", "sm=1", "mem=1"))), "gshare/vgpu", "write 1 to 64"},
	"quota 0":            {pod(limits("quota=0")), "gshare/quota", "write 1 to 100"},
	"quota 101":          {pod(limits("quota=101")), "gshare/quota", "write 1 to 100"},
	"sm uneven":          {pod(limits("sm=25", "vgpu=2"), says("isolation", "exclusive")), "gshare/sm", "write a multiple of gshare/vgpu"},
	"sm of two":          {pod(limits("sm=150", "vgpu=1")), "gshare/vgpu", "write at least gshare/sm divided by 100"},
	"mem uneven":         {pod(limits("mem=8191", "vgpu=2")), "gshare/mem", "write a multiple of gshare/vgpu"},
	"quota of two":       {pod(limits("quota=50", "vgpu=2")), "gshare/quota", "write 100, or one vGPU"},
	"sm-time":            {pod(limits("sm-time=1")), "gshare/sm-time", "leave it out"},
	"sm-limit text":      {pod(says("sm-limit", "48%")), "gshare.dev/sm-limit", "write a whole number"},
	"sm-limit 101":       {pod(says("sm-limit", "101")), "gshare.dev/sm-limit", "from 1 to 100"},
	"sm-limit below":     {pod(says("sm-limit", "23")), "gshare.dev/sm-limit", "write at least as much"},
	"quota-limit text":   {pod(says("quota-limit", "080")), "gshare.dev/quota-limit", "write a whole number"},
	"quota-limit below":  {pod(says("quota-limit", "80")), "gshare.dev/quota-limit", "write at least as much"},
	"elastic in both":    {pod(limits("quota=50"), says("sm-limit", "48")), "gshare.dev/sm-limit", "leave one of the two out"},
	"isolation":          {pod(says("isolation", "any")), "gshare.dev/isolation", "write exclusive, mps, elastic or swap"},
	"swap of two":        {pod(says("isolation", "swap"), another(container("second", "sm=50", "mem=10"))), "gshare.dev/isolation", "swap is for one vGPU of a pod"},
	"swap, not limited":  {pod(says("isolation", "swap"), says("enforcement", "best-effort")), "gshare.dev/isolation", "swap needs gshare.dev/enforcement strict"},
	"swap with weights":  {pod(says("isolation", "swap"), says("weights", digest+"=1Gi")), "gshare.dev/isolation", "swap cannot be had with gshare.dev/weights"},
	"swap with sm-limit": {pod(says("isolation", "swap"), says("sm-limit", "48")), "gshare.dev/isolation", "mps and swap fix the SMs"},
	"mps with sm-limit":  {pod(says("isolation", "mps"), says("sm-limit", "48")), "gshare.dev/isolation", "or write elastic"},
	"elastic with quota": {pod(says("isolation", "elastic"), limits("quota=50")), "gshare.dev/isolation", "or write mps"},
	"parts of two":       {pod(limits("sm=150")), "gshare.dev/isolation", "write exclusive, or leave it out"},
	"two by mps":         {pod(limits("sm=200"), says("isolation", "mps")), "gshare.dev/isolation", "write exclusive, or leave it out"},
	"class":              {pod(says("class", "gold")), "gshare.dev/class", "write slo or best-effort"},
	"class not allowed":  {pod(says("class", "slo")), "gshare.dev/class", "gshare.dev/slo=allowed"},
	"enforcement":        {pod(says("enforcement", "none")), "gshare.dev/enforcement", "write strict or best-effort"},
	"slice":              {pod(says("slice", "1c.2g.10gb")), "gshare.dev/slice", "write gpu, mig or"},
	"slice of one":       {pod(says("slice.main", "half")), "gshare.dev/slice.", "write gpu, mig or"},
	"slice of none":      {pod(says("slice.other", "1g.10gb")), "gshare.dev/slice.", "a container of the pod"},
	"slice without ask":  {pod(another(container("log")), says("slice.log", "1g.10gb")), "gshare.dev/slice.", "that asks for a share"},
	"workload":           {pod(says("workload", "a b")), "gshare.dev/workload", "at most 63 letters"},
	"anti-affinity":      {pod(says("anti-affinity", "a b")), "gshare.dev/anti-affinity", "at most 63 letters"},
	"packing":            {pod(says("packing", "dense")), "gshare.dev/packing", "binpack or spread"},
	"model":              {pod(says("model", "A100,,H200")), "gshare.dev/model", "such as A100,H200"},
	"weights, no size":   {pod(says("weights", digest)), "gshare.dev/weights", "with the size on the device"},
	"weights in bytes":   {pod(says("weights", digest+"=2634MB")), "gshare.dev/weights", "with the size on the device"},
	"weights too large":  {pod(says("weights", digest+"=1025Ti")), "gshare.dev/weights", "at most 1024Ti"},
	"weights by name":    {pod(says("weights", "resnext=2634Mi")), "gshare.dev/weights", "sha256:"},
	"weights twice":      {pod(says("weights", digest+"=1Gi,"+digest+"=2Gi")), "gshare.dev/weights", "each once"},
	"9 weights":          {pod(says("weights", nine)), "gshare.dev/weights", "at most 8"},
	"17 models":          {pod(says("model", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q")), "gshare.dev/model", "at most 16"},

	"hostPID":                {pod(hostPID), "spec.hostPID", "leave it out"},
	"hostIPC":                {pod(hostIPC), "spec.hostIPC", "leave it out"},
	"privileged":             {pod(another(privileged(container("root")))), "securityContext.privileged", "leave it out"},
	"privileged init":        {pod(initially(privileged(container("root")))), "securityContext.privileged", "leave it out"},
	"device":                 {pod(hostPath("/dev/nvidia0")), "hostPath", "leave the volume out"},
	"device, other spelling": {pod(hostPath("//dev/./nvidia-uvm")), "hostPath", "leave the volume out"},
	"all devices":            {pod(hostPath("/dev/")), "hostPath", "leave the volume out"},
	"the node":               {pod(hostPath("/")), "hostPath", "leave the volume out"},
	"through proc":           {pod(hostPath("/proc/1/root/dev")), "hostPath", "leave the volume out"},
	"the agent's sockets":    {pod(hostPath("/var/run/gshare/x")), "hostPath", "leave the volume out"},
	"host's shared memory":   {pod(hostPath("/dev/shm")), "hostPath", "an emptyDir with medium: Memory"},
	"runtime's socket":       {pod(hostPath("/run/containerd/containerd.sock")), "hostPath", "leave the volume out"},
	"hook's directory":       {pod(env("GSHARE_DIR")), "env: GSHARE_DIR", "gshare/sm"},
	"LD_AUDIT":               {pod(env("LD_AUDIT")), "env: LD_AUDIT", "leave it out"},
	"MPS limit":              {pod(env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")), "env: CUDA_MPS_ACTIVE", "gshare/sm"},
	"visible devices":        {pod(env("NVIDIA_VISIBLE_DEVICES")), "env: NVIDIA_VISIBLE_DEVICES", "gshare/vgpu"},
	"of the second":          {pod(another(container("second")), env("NVIDIA_VISIBLE_DEVICES")), "env: NVIDIA_VISIBLE_DEVICES", "gshare/vgpu"},
	"capability":             {pod(initially(capable(container("init"), "SYS_ADMIN"))), "securityContext.capabilities: SYS_ADMIN", "leave it out"},
	"preload file":           {pod(mount("/etc/ld.so.preload")), "volumeMounts: /etc/ld.so.preload", "elsewhere"},
	"last message":           {pod(lastMessage("/run/gshare/policy")), "volumeMounts: /run/gshare/policy", "elsewhere"},
}

func (c *cluster) testBad(t *testing.T) {
	seen := map[string]bool{}
	for name, tc := range badPods {
		t.Run(name, func(t *testing.T) {
			_, err := c.try("default", tc.pod)
			if err == nil {
				t.Fatal("accepted")
			}
			_, message, _ := strings.Cut(err.Error(), "denied request: ")
			if !strings.HasPrefix(message, tc.field) || !strings.Contains(message, tc.fix) {
				t.Errorf("%v\nwant a policy's message that starts with %q and says %q", err, tc.field, tc.fix)
			}
			seen[message] = true
		})
	}
	for _, rule := range c.rules(t) {
		if !seen[rule.Message] && rule.MessageExpression == "" {
			t.Errorf("no bad pod breaks the rule %q", rule.Message)
		}
	}
}

func (c *cluster) rules(t *testing.T) (rules []admission.Validation) {
	t.Helper()
	policies, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(c.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, policy := range policies.Items { // TestWriters has applied others, if it ran before
		if slices.Contains([]string{"gshare-share", "gshare-isolation", "gshare-slo"}, policy.Name) {
			found++
			rules = append(rules, policy.Spec.Validations...)
		}
	}
	if found != 3 {
		t.Fatalf("%d of 3 policies are there", found)
	}
	return rules
}

// heavy gives the pod an overhead, which can only come from a RuntimeClass.
func heavy(p *v1.Pod) { p.Spec.RuntimeClassName = new("heavy") }

func (c *cluster) runtimeClass(t *testing.T) {
	t.Helper()
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "heavy"}, Handler: "heavy"}
	class.Overhead = &nodev1.Overhead{PodFixed: v1.ResourceList{}}
	set(class.Overhead.PodFixed, []string{"mem=100"})
	if _, err := c.NodeV1().RuntimeClasses().Create(c.ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, "RuntimeClass heavy", func() (bool, error) {
		_, err := c.try("default", pod(heavy))
		return err == nil, err
	})
}
