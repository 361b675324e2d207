package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// TestAnnounce: one of the controllers has the label of the leader, whoever had it before, even if the API server was away for a moment.
func TestAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(namespace, name string, labels map[string]string) *v1.Pod {
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
		}
		leads := map[string]string{leader: "true"}
		clients := fake.NewClientset(pod("gshare-system", "a", leads), pod("gshare-system", "b", nil), pod("other", "c", leads))
		failures := 2
		clients.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("away")
		})
		adviser{clients: clients, namespace: "gshare-system", name: "b", log: slog.New(slog.DiscardHandler)}.announce(t.Context())
		list, err := clients.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: leader + "=true"})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range list.Items {
			names = append(names, p.Namespace+"/"+p.Name)
		}
		if want := []string{"gshare-system/b", "other/c"}; !slices.Equal(names, want) {
			t.Errorf("%v lead, want %v", names, want)
		}
	})
}

// TestAdviserEnds: the port is there until the process leads no more.
func TestAdviserEnds(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.2:0") // no outgoing connection takes its port until it is used: those come from 127.0.0.1
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	advisor := fleet.NewAdvisor(func(gateway.FunctionName) gateway.Load { return gateway.Load{} }, slog.New(slog.DiscardHandler))
	if err := (adviser{address: address}).run(t.Context(), advisor); err == nil {
		t.Error("no error for a port that somebody else has")
	}
	_ = free.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- adviser{address: address}.run(ctx, advisor) }()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		_ = c.Close()
		t.Error("the port is open after the end")
	}
}
