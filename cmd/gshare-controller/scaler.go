package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/keda"
)

// adviser answers KEDA's queries while this process leads.
type adviser struct {
	address         string // to listen on for KEDA; 0 for none
	clients         kubernetes.Interface
	namespace, name string // of the pod that this process runs in; empty if it does not run in one
	log             *slog.Logger
}

// run answers until ctx ends. Only the leader knows the load, so it labels its pod as the one that KEDA's Service selects.
func (a adviser) run(ctx context.Context, advisor *fleet.Advisor) error {
	if a.address == "0" {
		return nil
	}
	listener, err := net.Listen("tcp", a.address)
	if err != nil {
		return fmt.Errorf("listen for KEDA: %w", err)
	}
	server := keda.NewServer(advisor)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if a.name != "" {
		go a.announce(ctx)
	}
	if err := server.Serve(listener); err != nil && ctx.Err() == nil { // Serve fails if ctx ends before it
		return fmt.Errorf("serve KEDA: %w", err)
	}
	return nil
}

// leader is the label of the pod of gshare-controller that is the leader. An earlier leader whose node is unreachable may still have it.
//
//	kind: label
//	object: pod of gshare-controller
//	written by: gshare-controller
//	values: "true"
//	default: none
//	example: serving.gshare.dev/leader: "true"
const leader = "serving.gshare.dev/leader"

// announceRetry is the time after which announce tries again.
const announceRetry = time.Second

// announce sets the leader label on this pod and removes it from all others. It retries until it succeeds or ctx ends.
func (a adviser) announce(ctx context.Context) {
	for {
		err := a.label(ctx)
		if err == nil {
			return
		}
		a.log.Warn("failed to label the pods of the controller", "error", err)
		select {
		case <-time.After(announceRetry):
		case <-ctx.Done():
			return
		}
	}
}

func (a adviser) label(ctx context.Context) error {
	pods := a.clients.CoreV1().Pods(a.namespace)
	patch := func(name, value string) error {
		_, err := pods.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, leader, value), metav1.PatchOptions{})
		return err
	}
	if err := patch(a.name, `"true"`); err != nil {
		return err
	}
	labelled, err := pods.List(ctx, metav1.ListOptions{LabelSelector: leader + "=true"})
	if err != nil {
		return err
	}
	for _, p := range labelled.Items {
		if p.Name == a.name {
			continue
		}
		if err := patch(p.Name, "null"); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
