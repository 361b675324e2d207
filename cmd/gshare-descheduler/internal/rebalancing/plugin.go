// Package rebalancing is the descheduler's plugin GPURebalance. In each cycle it evicts the pods of one step: pods whose move lets a waiting pod
// in, or all pods on one GPU, which becomes free. It makes no further step to free a GPU until the replacements run.
package rebalancing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/descheduler/pkg/descheduler/evictions"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
	framework "sigs.k8s.io/descheduler/pkg/framework/types"

	"github.com/gshare-dev/gshare/vgpu/kube/rebalanceview"
	"github.com/gshare-dev/gshare/vgpu/rebalance"
)

// Name is the name of the plugin in a DeschedulerPolicy.
const Name = "GPURebalance"

// Register adds the plugin to those of the descheduler. A policy that enables it fails with the error of refuse, if there is one.
func Register(registry pluginregistry.Registry, refuse func() error) {
	build := func(ctx context.Context, args runtime.Object, handle framework.Handle) (framework.Plugin, error) {
		if err := refuse(); err != nil {
			return nil, err
		}
		return New(ctx, args, handle)
	}
	pluginregistry.Register(Name, build, &Plugin{}, &Args{}, Validate, Default, registry)
}

// Plugin moves pods with shares of GPUs.
type Plugin struct {
	args       *Args
	handle     framework.Handle
	nodes      corelisters.NodeLister
	pods       corelisters.PodLister
	namespaces corelisters.NamespaceLister
	budgets    policylisters.PodDisruptionBudgetLister
	now        func() time.Time
	rests      map[types.UID]time.Time // until when no pod of an owner is moved
	evicted    time.Time               // when a pod was last evicted
}

var _ framework.BalancePlugin = &Plugin{}

// New returns the plugin.
func New(_ context.Context, args runtime.Object, handle framework.Handle) (framework.Plugin, error) {
	a, ok := args.(*Args)
	if !ok {
		return nil, fmt.Errorf("%s: want arguments of type *rebalancing.Args, got %T", Name, args)
	}
	core := handle.SharedInformerFactory().Core().V1()
	return &Plugin{
		args: a, handle: handle, nodes: core.Nodes().Lister(), pods: core.Pods().Lister(), namespaces: core.Namespaces().Lister(),
		budgets: handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister(), now: time.Now, rests: map[types.UID]time.Time{},
	}, nil
}

// Name implements framework.Plugin.
func (p *Plugin) Name() string { return Name }

// Balance makes one step. It moves pods only from the nodes that the policy selects, but to any node of the cluster.
func (p *Plugin) Balance(ctx context.Context, nodes []*v1.Node) *framework.Status {
	view, later, err := p.views(nodes)
	if err != nil {
		return &framework.Status{Err: err}
	}
	step, why := p.step(view, later)
	observe(view, step)
	for _, m := range step.Moves {
		pod := view.Of[m.Pod]
		switch err := p.evict(ctx, pod, why); {
		case isLimit(err):
			return nil
		case err != nil:
			return &framework.Status{Err: err}
		}
		klog.FromContext(ctx).Info("Moving pod", "plugin", Name, "pod", klog.KObj(pod), "why", why, "expected", view.Nodes[m.To].Name)
	}
	return nil
}

// views returns the cluster as the informers show it, and as it is to be once the pods that are ending have ended.
func (p *Plugin) views(selected []*v1.Node) (now, later *rebalanceview.View, err error) {
	o := rebalanceview.Objects{Scheduler: p.args.Scheduler}
	from := map[string]bool{}
	for _, n := range selected {
		from[n.Name] = true
	}
	o.Evictable = func(pod *v1.Pod) bool {
		return from[pod.Spec.NodeName] && !p.rests[ownerOf(pod)].After(p.now()) && p.handle.Evictor().Filter(pod) && p.handle.Evictor().PreEvictionFilter(pod)
	}
	var errs [4]error
	o.Nodes, errs[0] = p.nodes.List(labels.Everything())
	o.Pods, errs[1] = p.pods.List(labels.Everything())
	o.Namespaces, errs[2] = p.namespaces.List(labels.Everything())
	o.Budgets, errs[3] = p.budgets.List(labels.Everything())
	if err := errors.Join(errs[:]...); err != nil {
		return nil, nil, err
	}
	now = rebalanceview.New(o)
	o.Pods = slices.DeleteFunc(slices.Clone(o.Pods), p.isEnding)
	return now, rebalanceview.New(o), nil
}

// maxEnding is how far from now the end of a terminating pod's grace period may be for others to wait for the pod's place: users choose the grace
// period, and a pod on a node that is gone terminates for ever.
const maxEnding = time.Hour

// isEnding reports whether a pod is terminating and its place is soon free.
func (p *Plugin) isEnding(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && p.now().Sub(pod.DeletionTimestamp.Time).Abs() < maxEnding
}

// maxPlacing is how long others wait for a pod that fits to be placed, from its creation or from the last eviction on, which may have been for it. A pod
// that fits by the rules of the plugin can be one that the scheduler refuses for reasons of its own.
const maxPlacing = time.Hour

// step returns the moves that let in the first waiting pod for which there are any. It makes no room for a pod for which there will be room
// without it: where pods are ending, after the last step or an update, or where the scheduler has preempted others. It frees no GPU before the last
// step has ended: while pods are ending, or pods wait that fit and should soon be placed, or that replace a pod which this plugin has evicted. It does
// not wait for pods that nothing lets in, such as those that no node suits.
func (p *Plugin) step(view, later *rebalanceview.View) (rebalance.Plan, string) {
	limits := rebalance.Limits{Moves: p.args.MovesPerGPU, PerDevice: p.args.MovesPerGPU, Devices: 1}
	goesOn := view.Fixed[rebalanceview.Terminating] > later.Fixed[rebalanceview.Terminating]
	for _, pod := range view.Waiting {
		if _, fits := later.Admit(pod, rebalance.Limits{}); fits || pod.Status.NominatedNodeName != "" {
			goesOn = goesOn || p.now().Sub(pod.CreationTimestamp.Time) < maxPlacing || p.now().Sub(p.evicted) < maxPlacing
			continue
		}
		if plan, ok := view.Admit(pod, limits); ok && len(plan.Moves) > 0 {
			return plan, "lets in " + pod.Namespace + "/" + pod.Name
		}
		goesOn = goesOn || p.rests[ownerOf(pod)].After(p.now())
	}
	if goesOn {
		return rebalance.Plan{}, ""
	}
	return rebalance.Free(&view.Cluster, limits), "frees a GPU"
}

func (p *Plugin) evict(ctx context.Context, pod *v1.Pod, why string) error {
	err := p.handle.Evictor().Evict(ctx, pod, evictions.EvictOptions{StrategyName: Name, Reason: why})
	if err == nil {
		p.evicted = p.now()
	}
	if !isLimit(err) { // if the API server refuses it, others have their turn before it is tried again
		p.rests[ownerOf(pod)] = p.now().Add(p.args.Rest.Duration)
	}
	return err
}

func ownerOf(pod *v1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return pod.UID
}

// isLimit reports whether a limit of the policy refused an eviction. The rest of the step then waits for the next cycle.
func isLimit(err error) bool {
	var node *evictions.EvictionNodeLimitError
	var namespace *evictions.EvictionNamespaceLimitError
	var total *evictions.EvictionTotalLimitError
	return errors.As(err, &node) || errors.As(err, &namespace) || errors.As(err, &total)
}
