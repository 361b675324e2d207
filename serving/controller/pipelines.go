package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	atOnce int             // requests, for each of spec.scaling.concurrency
}

// newCut returns the cut of an assignment, for a pod of a function.
func newCut(r *pipeline.Ranking, a pipeline.Assignment, f *api.GPUFunction) *cut {
	c := &cut{layout: r.Layout(a), atOnce: min(a.AtOnce(f.Spec.SLO.Latency.Value()), api.MaxAtOnce)}
	server := f.Container().Name
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
	return fmt.Sprintf("%s%d", api.StagePrefix, part)
}

// text returns the layout as JSON.
func (c *cut) text() string {
	text, err := json.Marshal(c.layout)
	if err != nil {
		panic(err) // it has names only
	}
	return string(text)
}

// key differs for cuts that differ in what the scheduler sees of them. cutKeyOf returns that of a pod.
func (c *cut) key() string {
	var names []string
	for _, k := range c.kinds {
		names = append(names, k.Name)
	}
	text := ""
	if len(c.kinds) > 1 {
		text = c.text()
	}
	return cutKey(text, names)
}

func cutKey(layout string, kinds []string) string { return layout + strings.Join(kinds, ",") }

// cutKeyOf returns the key of the cut that a pod has, also one that an earlier leader has created.
func cutKeyOf(pod *v1.Pod) string {
	server, layout := &pod.Spec.Containers[0], ""
	for _, v := range server.Env {
		if v.Name == stagesVariable {
			layout = strings.ReplaceAll(v.Value, "$$", "$")
		}
	}
	var kinds []string
	for part := 0; ; part++ {
		kind, has := pod.Annotations[kube.AnnotationContainerSlice+partName(server.Name, part)]
		if !has {
			return cutKey(layout, kinds)
		}
		kinds = append(kinds, kind)
	}
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
	if c.atOnce > 1 {
		setAnnotation(&pod.ObjectMeta, api.AnnotationAtOnce, strconv.Itoa(c.atOnce))
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
	pods  *nodePods
}

// cut returns how the next pod of a function with a pipeline is cut, for the instances that are free on one of the nodes: not as was tried in vain. Of
// several nodes it is that where it takes the least. It returns nil if there is no other way.
func (c cutter) cut(ctx context.Context, f *api.GPUFunction, tried map[string]bool) (*cut, error) {
	f = c.current(ctx, f)
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
	seen, began := map[string]bool{}, time.Now()
	for _, n := range nodes {
		if key := kindsOfAll(n.free); seen[key] {
			continue // there it is cut in the same way
		} else if seen[key] = true; time.Since(began) > cutLimit {
			break
		}
		found, err := ranking.Assignments(n.free, demand)
		if err != nil {
			return nil, err
		}
		for a := range found {
			one := newCut(ranking, a, f)
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
	return anyCut(ranking, nodes, demand, f, began)
}

// current returns a function with the pipeline and the objective that its object has now: a replica that waits, as no node has what they ask for, is of
// the function as it was when the replica was wanted first.
func (c cutter) current(ctx context.Context, f *api.GPUFunction) *api.GPUFunction {
	now := &api.GPUFunction{}
	if err := c.nodes.Get(ctx, client.ObjectKeyFromObject(f), now); err != nil || now.UID != f.UID || now.Spec.Pipeline == nil {
		return f
	}
	changed := *f
	changed.Spec.Pipeline, changed.Spec.SLO = now.Spec.Pipeline, now.Spec.SLO
	return &changed
}

// cutLimit is the time after which no further nodes are looked at: functions of others wait for a worker.
const cutLimit = time.Second

// kindsOfAll returns a text that is the same for slices of the same kinds.
func kindsOfAll(all []pipeline.Slice) string {
	var names []string
	for _, s := range all {
		names = append(names, s.Kind.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// errTooSlow is the error for a function that no node could run as its objective says.
var errTooSlow = errors.New("no node has the MIG instances to run it within spec.slo.latency, even if all of them were free")

// anyCut returns how a pod is cut that has to wait: for instances of a node that others have now. began is when the search began.
func anyCut(ranking *pipeline.Ranking, nodes []fragments, demand pipeline.Demand, f *api.GPUFunction, began time.Time) (*cut, error) {
	seen := map[string]bool{}
	for _, n := range nodes {
		if key := kindsOfAll(n.all); seen[key] {
			continue
		} else if seen[key] = true; len(seen) > 1 && time.Since(began) > 2*cutLimit {
			break
		}
		found, err := ranking.Assignments(n.all, demand)
		if err != nil {
			return nil, err
		}
		var first *cut
		found(func(a pipeline.Assignment) bool {
			first = newCut(ranking, a, f)
			return false
		})
		if first != nil {
			return first, nil
		}
	}
	return nil, errTooSlow
}

// next returns how the pod of an instance is to be cut; nil if its function has no pipeline.
func (c cutter) next(ctx context.Context, i *podInstance) (*cut, error) {
	switch {
	case i.Function.Spec.Pipeline == nil:
		return nil, nil
	case i.Move.From != 0:
		return c.whole(ctx, i.Function, i.Move.Profile)
	}
	found, err := c.cut(ctx, i.Function, i.cuts.tried)
	if found == nil && err == nil {
		return c.cut(ctx, i.Function, nil)
	}
	return found, err
}
