package controller

import (
	"context"
	"maps"
	"sync"

	"k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// functionObjects are the GPUFunctions in a cache. Listing them by a client every second would copy each of them.
type functionObjects struct {
	mu     sync.Mutex
	byName map[gateway.FunctionName]*api.GPUFunction
}

// watch follows the objects of a cache. Call it before the cache starts.
func (o *functionObjects) watch(c crcache.Cache) error {
	informer, err := c.GetInformer(context.Background(), &api.GPUFunction{}, crcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(o.handler())
	return err
}

func (o *functionObjects) handler() cache.ResourceEventHandler {
	change := func(object any, set bool) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		f, ok := object.(*api.GPUFunction)
		if !ok {
			return
		}
		name := gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.byName == nil {
			o.byName = map[gateway.FunctionName]*api.GPUFunction{}
		}
		if set {
			o.byName[name] = f
		} else {
			delete(o.byName, name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(f any) { change(f, true) }, UpdateFunc: func(_, f any) { change(f, true) }, DeleteFunc: func(f any) { change(f, false) },
	}
}

// all returns the objects, which belong to the cache and must not be changed.
func (o *functionObjects) all() map[gateway.FunctionName]*api.GPUFunction {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.byName)
}
