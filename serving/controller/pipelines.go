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

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// What the containers of a pod that is cut share, and the variables from which python -m gshare serve knows which part it is.
const (
	pipelineVolume = "gshare-pipeline"
	pipelineFolder = "/run/gshare-pipeline"

	stagesVariable = "GSHARE_STAGES" // the pipeline.Layout; only in the first container
	stageVariable  = "GSHARE_STAGE"  // the container's name in the layout
	attachVariable = "GSHARE_ATTACH" // pipelineFolder
)

// cut is how the pod of a replica is cut into parts: each part is a container with its own MIG instance. The first part is the server.
type cut struct {
	layout pipeline.Layout
	kinds  []pipeline.Kind // kinds of the parts' instances, in the order of the layout
	atOnce int             // requests at once for each of spec.scaling.concurrency
}

// newCut returns the cut that an assignment means for a pod of a function.
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
		panic(err) // cannot happen: it consists of names
	}
	return string(text)
}

// key is the same for two cuts that the scheduler cannot distinguish. cutKeyOf returns the key for a pod.
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

// cutKeyOf returns the key of the cut of a pod, which an earlier leader may have created.
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

// apply makes a container for each part, derived from the server's, and requests a MIG instance for each. It does nothing if c is nil.
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
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, *stage) // after the init containers that prepare the pod
	}
	if c.atOnce > 1 {
		setAnnotation(&pod.ObjectMeta, api.AnnotationAtOnce, strconv.Itoa(c.atOnce))
	}
	if len(c.kinds) > 1 {
		// Escaped, since the kubelet would expand $(NAME).
		server.Env = append(server.Env, v1.EnvVar{Name: stageVariable, Value: server.Name},
			v1.EnvVar{Name: stagesVariable, Value: strings.ReplaceAll(c.text(), "$", "$$")})
	}
	askInstance(pod, server, c.kinds[0])
	kube.Complete(pod)
}

// askInstance makes a container request all of a MIG instance.
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

// pipelineOf returns a function with a pipeline in the form of package pipeline. It is valid unless its object was created under an older definition.
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

// cutter cuts functions to fit the MIG instances of the cluster's nodes.
type cutter struct {
	nodes client.Reader // a cache
	pods  *nodePods
}

// cut returns how to cut the next pod of a function with a pipeline so that it fits the free instances of one of the nodes, other than as was tried
// in vain. Among the nodes it chooses the cut that takes the fewest compute slices. It returns nil if there is no other cut.
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
			continue // the cut for this node would be the same
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

// current returns a function with the pipeline and the objective that its object has now. A replica that waits because no node has what they ask for
// still has the function as it was when the replica was first wanted.
func (c cutter) current(ctx context.Context, f *api.GPUFunction) *api.GPUFunction {
	now := &api.GPUFunction{}
	if err := c.nodes.Get(ctx, client.ObjectKeyFromObject(f), now); err != nil || now.UID != f.UID || now.Spec.Pipeline == nil {
		return f
	}
	changed := *f
	changed.Spec.Pipeline, changed.Spec.SLO = now.Spec.Pipeline, now.Spec.SLO
	return &changed
}

// cutLimit is the time after which no more nodes are considered: other functions are waiting for a worker.
const cutLimit = time.Second

// kindsOfAll returns a text that is equal for slices of equal kinds.
func kindsOfAll(all []pipeline.Slice) string {
	var names []string
	for _, s := range all {
		names = append(names, s.Kind.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// errTooSlow is the error for a function whose objective no node could meet.
var errTooSlow = errors.New("no node has the MIG instances to run it within spec.slo.latency, even if all of them were free")

// anyCut returns how to cut a pod that has to wait for instances of a node which others have at present. began is when the search began.
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

// next returns how to cut the pod of an instance, nil if its function has no pipeline.
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
