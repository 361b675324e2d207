// Package sharing is what the packing plugins have in common: it turns pods and nodes into the terms of vgpu/packing, asks
// there, and carries the answer to the API server. It does no GPU arithmetic.
package sharing

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/api/config/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Config tells the packing plugins apart.
type Config struct {
	Name  string
	Model packing.Model
	Args  v1alpha1.SharingArgs
	// Ranker makes the node preference for what pods typically ask for.
	Ranker func(*packing.Demand) packing.Ranker
	// Affinity says that the ranker reads workloads.
	Affinity bool
	// Ledger is one for all profiles of the process.
	Ledger *ledger.Ledger
}

// Plugin implements the extension points of a packing plugin.
type Plugin struct {
	name        string
	handle      fwk.Handle
	pods        corelisters.PodLister
	rules       packing.Rules
	ranker      func(*packing.Demand) packing.Ranker
	candidates  int
	bestFit     packing.Packer // places pods virtually; unlike the fleet's it never changes
	ledger      *ledger.Ledger
	dossiers    *dossiers
	fleet       *fleet
	wide        set // UIDs of pods whose candidates were all refused: tried on every node until they have one
	complaints  complaints
	inventories inventories
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.ScoreExtensions   = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.BindPlugin        = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New makes the plugin for one profile.
func New(ctx context.Context, c Config, handle fwk.Handle) (*Plugin, error) {
	p := &Plugin{
		name: c.Name, handle: handle, rules: nodeview.Rules(c.Model, c.Args), ranker: c.Ranker, candidates: *c.Args.CandidateNodes,
		ledger: c.Ledger, pods: handle.SharedInformerFactory().Core().V1().Pods().Lister(),
	}
	p.dossiers = newDossiers(p.lives, c.Affinity)
	p.bestFit = p.packerFor(&packing.Demand{})
	p.fleet = newFleet(p.bestFit)
	p.fleet.narrows.Store(p.candidates > 0) // until the first cycle counts the nodes
	registerMetrics()
	if err := p.watchPods(); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Packing plugin ready", "plugin", c.Name, "model", c.Model, "tenancy", c.Args.Tenancy,
		"gammaPercent", *c.Args.GammaPercent, "candidateNodes", p.candidates)
	return p, nil
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return p.name }

func (p *Plugin) packerFor(d *packing.Demand) packing.Packer {
	return packing.Packer{Rules: p.rules, Ranker: p.ranker(d)}
}

// lives says that the informer has the pod, so that its deletion is still to come: the informer drops a pod before it
// tells of it. What is kept for a pod is kept only then.
func (p *Plugin) lives(pod *v1.Pod) bool { return p.knows(pod.Namespace, pod.Name, pod.UID) }

func (p *Plugin) knows(namespace, name string, uid types.UID) bool {
	known, err := p.pods.Pods(namespace).Get(name)
	return err == nil && known.UID == uid
}

// watchPods drops what is kept for a pod when the pod is gone or has ended. It only saves memory: a placement of a pod that
// is in no NodeInfo counts nowhere but in Reserve, where the pod that it keeps out tries again.
func (p *Plugin) watchPods() error {
	_, err := p.handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				p.ledger.Forget(pod.UID)
				p.dossiers.forget(pod.UID)
				p.wide.remove(pod.UID)
			}
		},
	})
	return err
}
