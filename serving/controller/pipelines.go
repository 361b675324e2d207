package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// What the containers of a pod that is cut share, and the variables by which python -m gshare serve knows its part.
const (
	pipelineVolume = "gshare-pipeline"
	pipelineFolder = "/run/gshare-pipeline"

	stagesVariable = "GSHARE_STAGES" // the pipeline.Layout, of the head alone
	stageVariable  = "GSHARE_STAGE"  // the container's name in it
	attachVariable = "GSHARE_ATTACH" // the folder
)

// cut is how the pod of a replica is cut: each part is a container with a MIG instance of its own. The first is the server.
type cut struct {
	layout pipeline.Layout
	kinds  []pipeline.Kind // of the parts, in the order of the layout
}

// newCut returns the cut of an assignment, for a pod whose server has this name.
func newCut(r *pipeline.Ranking, a pipeline.Assignment, server string) *cut {
	c := &cut{layout: r.Layout(a)}
	for s := range c.layout.Stages {
		for part := range c.layout.Stages[s] {
			c.kinds = append(c.kinds, a.Slices[s][part].Kind)
			c.layout.Stages[s][part].Slice = partName(server, len(c.kinds)-1)
		}
	}
	return c
}

// partName returns the name of the container of a part.
func partName(server string, part int) string {
	if part == 0 {
		return server
	}
	return fmt.Sprintf("gshare-stage-%d", part)
}

// text returns the layout as JSON.
func (c *cut) text() string {
	text, err := json.Marshal(c.layout)
	if err != nil {
		panic(err) // it has names only
	}
	return string(text)
}

// key differs for cuts that differ in what the scheduler sees of them.
func (c *cut) key() string {
	var names []string
	for _, k := range c.kinds {
		names = append(names, k.Name)
	}
	return c.text() + strings.Join(names, ",")
}

// apply makes a container of each part, from that of the server, and asks for an instance for each. Without a cut it does nothing.
func (c *cut) apply(pod *v1.Pod) {
	if c == nil {
		return
	}
	server := &pod.Spec.Containers[0]
	if len(c.kinds) > 1 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: pipelineVolume, VolumeSource: v1.VolumeSource{
			EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: resource.NewQuantity(int64(share.MiB), resource.BinarySI)},
		}})
		server.VolumeMounts = append(server.VolumeMounts, v1.VolumeMount{Name: pipelineVolume, MountPath: pipelineFolder})
		server.Env = append(server.Env, v1.EnvVar{Name: attachVariable, Value: pipelineFolder})
	}
	for part := 1; part < len(c.kinds); part++ {
		stage := server.DeepCopy()
		stage.Name, stage.RestartPolicy = partName(server.Name, part), new(v1.ContainerRestartPolicyAlways)
		stage.Ports, stage.Lifecycle, stage.StartupProbe, stage.ReadinessProbe, stage.LivenessProbe = nil, nil, nil, nil, nil
		stage.Env = append(stage.Env, v1.EnvVar{Name: stageVariable, Value: stage.Name})
		askInstance(pod, stage, c.kinds[part])
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, *stage) // after what prepares the pod
	}
	if len(c.kinds) > 1 {
		// The kubelet would expand $(NAME).
		server.Env = append(server.Env, v1.EnvVar{Name: stageVariable, Value: server.Name},
			v1.EnvVar{Name: stagesVariable, Value: strings.ReplaceAll(c.text(), "$", "$$")})
	}
	askInstance(pod, server, c.kinds[0])
	kube.Complete(pod)
}

// askInstance has a container ask for all of a MIG instance.
func askInstance(pod *v1.Pod, c *v1.Container, kind pipeline.Kind) {
	for _, list := range []*v1.ResourceList{&c.Resources.Limits, &c.Resources.Requests} {
		*list = maps.Clone(*list)
		maps.DeleteFunc(*list, func(name v1.ResourceName, _ resource.Quantity) bool {
			return strings.HasPrefix(string(name), kube.ResourcePrefix)
		})
	}
	if c.Resources.Limits == nil {
		c.Resources.Limits = v1.ResourceList{}
	}
	c.Resources.Limits[kube.ResourceSM] = *resource.NewQuantity(100, resource.DecimalSI)
	c.Resources.Limits[kube.ResourceMemory] = *resource.NewQuantity(int64(kind.Memory/share.MiB), resource.DecimalSI)
	setAnnotation(&pod.ObjectMeta, kube.AnnotationContainerSlice+c.Name, kind.Name)
}

// pipelineOf returns a function with a pipeline as the rules know it. It is valid unless its object is of an older definition.
func pipelineOf(f *api.GPUFunction) pipeline.Function {
	out := pipeline.Function{Name: f.Name, Transfer: f.Spec.Pipeline.Transfer.Value()}
	for _, s := range f.Spec.Pipeline.Stages {
		n := pipeline.Node{Name: s.Name, After: s.DependsOn, Memory: s.Bytes(), Times: map[string]time.Duration{}}
		for _, t := range s.Times {
			n.Times[t.Profile] = t.Time.Value()
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out
}

// cutter cuts functions for the instances of the cluster's nodes.
type cutter struct {
	nodes client.Reader // a cache
	pods  client.Reader // the API server: the cache has no pods of others
}

// cut returns how the next pod of a function with a pipeline is cut, for the instances that are free on one of the nodes: not as was tried in vain. Of
// several nodes it is that where it takes the least. It returns nil if there is no other way.
func (c cutter) cut(ctx context.Context, f *api.GPUFunction, tried map[string]bool) (*cut, error) {
	function := pipelineOf(f)
	nodes, kinds, err := c.fragments(ctx, function)
	if err != nil {
		return nil, err
	}
	if len(kinds) == 0 {
		return nil, errors.New("no node has a MIG instance of a profile on which its stages were measured")
	}
	ranking, err := pipeline.Rank(function, kinds)
	if err != nil {
		return nil, err
	}
	demand := pipeline.Demand{SLO: f.Spec.SLO.Latency.Value()}
	var best *cut
	least := 0
	for _, n := range nodes {
		found, err := ranking.Assignments(n.free, demand)
		if err != nil {
			return nil, err
		}
		for a := range found {
			one := newCut(ranking, a, f.Container().Name)
			if tried[one.key()] {
				continue
			}
			if takes := a.ComputeSlices(); best == nil || takes < least {
				best, least = one, takes
			}
			break
		}
	}
	if best != nil || len(tried) > 0 {
		return best, nil
	}
	return anyCut(ranking, nodes, demand, f)
}

// anyCut returns how a pod is cut that has to wait: for instances of a node that others have now.
func anyCut(ranking *pipeline.Ranking, nodes []fragments, demand pipeline.Demand, f *api.GPUFunction) (*cut, error) {
	var last error
	for _, n := range nodes {
		a, err := ranking.Assign(n.all, demand)
		if err == nil {
			return newCut(ranking, a, f.Container().Name), nil
		}
		last = err
	}
	return nil, last
}

// nextCut returns how the pod of an instance is to be cut; nil if its function has no pipeline.
func (c cutter) next(ctx context.Context, i *podInstance) (*cut, error) {
	if i.Function.Spec.Pipeline == nil {
		return nil, nil
	}
	found, err := c.cut(ctx, i.Function, i.cuts.tried)
	if found == nil && err == nil {
		return c.cut(ctx, i.Function, nil)
	}
	return found, err
}

// triedCuts are the cuts that the pods of a replica have had since one was placed, or for a while.
type triedCuts struct {
	tried   map[string]bool // by cut.key
	present string          // that of the pod
	since   time.Time
}

// triedAgain is the time after which a cut that had no room is tried again.
const triedAgain = time.Minute

func (t *triedCuts) add(c *cut) {
	if c == nil {
		return
	}
	if t.tried == nil {
		t.tried, t.since = map[string]bool{}, time.Now()
	}
	t.present = c.key()
	t.tried[t.present] = true
}

// forget lets all but the present cut be tried again, after a while.
func (t *triedCuts) forget() {
	if time.Since(t.since) >= triedAgain {
		t.tried, t.since = map[string]bool{t.present: true}, time.Now()
	}
}

// recut gives up the pod of a replica with a pipeline for which the scheduler has found no node for a while, so that it is created again with the next
// cut, if there is one. It reports whether it did.
func recut(ctx context.Context, p *Pods, i *podInstance, pod *v1.Pod) (bool, error) {
	why := unschedulable(pod)
	if i.Function.Spec.Pipeline == nil || why == nil || pod.Status.NominatedNodeName != "" { // others make room for it
		return false, nil
	}
	if left := roomPause - time.Since(why.LastTransitionTime.Time); left > 0 {
		p.queue.AddAfter(i.Name, left)
		return false, nil
	}
	i.cuts.forget()
	next, err := cutter{p.client, p.live}.cut(ctx, i.Function, i.cuts.tried)
	if err != nil {
		return false, err
	}
	if next == nil {
		p.queue.AddAfter(i.Name, roomAgain)
		return false, nil
	}
	if err := p.delete(ctx, pod); err != nil {
		return false, err
	}
	p.log.Info("gave up a cut that has no room", "replica", i.Name, "next", next.text())
	p.mu.Lock()
	i.pod, i.uid = client.ObjectKey{}, ""
	p.mu.Unlock()
	p.queue.Add(i.Name)
	return true, nil
}
