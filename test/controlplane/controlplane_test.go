package controlplane_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

const defaultProfile = "profiles: [{schedulerName: default-scheduler}]"

func TestMain(m *testing.M) {
	runAsParent()
	os.Exit(m.Run())
}

func TestSchedulerBindsAgainAfterKill(t *testing.T) {
	ctx := testContext(t)
	c := start(ctx, t, controlplane.Options{})
	client := clientFor(t, c.Config(access.Admin))
	createNode(ctx, t, client)

	scheduler := startScheduler(ctx, t, c, controlplane.SchedulerOptions{})
	createPod(ctx, t, client, "first")
	waitBound(ctx, t, client, "first")
	for _, path := range []string{"/metrics", "/configz", "/debug/pprof/heap?debug=1"} {
		if _, err := scheduler.Get(ctx, path); err != nil {
			t.Error(err)
		}
	}
	logMemory(t, c.APIServer, scheduler)

	scheduler.Kill()
	if err := scheduler.Err(); err != nil {
		t.Errorf("a killed scheduler reports %v", err)
	}
	createPod(ctx, t, client, "second")
	proxy, requests := startProxy(t, c.Config(access.Scheduler))
	second := startScheduler(ctx, t, c, controlplane.SchedulerOptions{
		Server: proxy, LeaderElect: true,
		LeaseDuration: time.Minute, RenewDeadline: 50 * time.Second, RetryPeriod: 500 * time.Millisecond, // nobody waits for the lease to expire
	})
	waitBound(ctx, t, client, "second")
	if requests.Load() == 0 {
		t.Error("the scheduler did not use the proxy")
	}

	stop(t, c)
	for _, p := range []*controlplane.Process{c.APIServer, scheduler, second} {
		if err := syscall.Kill(p.PID(), 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s is still there: %v", p.Name, err)
		}
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", c.Dir(), err)
	}
}

func TestUsersAndAdmission(t *testing.T) {
	ctx := testContext(t)
	c := start(ctx, t, controlplane.Options{})
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig(access.Scheduler))
	if err != nil {
		t.Fatal(err)
	}
	scheduler := clientFor(t, config)
	if _, err := scheduler.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("the scheduler may not list nodes: %v", err)
	}
	if _, err := scheduler.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the scheduler may list config maps: %v", err)
	}
	stranger := clientFor(t, c.Config("stranger"))
	if _, err := stranger.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a stranger got %v", err)
	}
	admin := clientFor(t, c.Config(access.Admin))
	if _, err := admin.AdmissionregistrationV1().MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("no mutating admission policies: %v", err)
	}

	_, err = c.StartScheduler(ctx, "broken", []byte("profiles: [{schedulerName: a, pluginConfig: 7}]"), controlplane.SchedulerOptions{})
	if err == nil || !strings.Contains(err.Error(), "pluginConfig") {
		t.Errorf("a broken configuration gave %v", err)
	}
}

func TestDirectoryKeepsObjects(t *testing.T) {
	ctx := testContext(t)
	o := controlplane.Options{Dir: t.TempDir()}
	c := start(ctx, t, o)
	createNode(ctx, t, clientFor(t, c.Config(access.Admin)))
	if _, err := controlplane.Start(ctx, o); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("a second start in the same directory gave %v", err)
	}
	stop(t, c)

	c = start(ctx, t, o)
	client := clientFor(t, c.Config(access.Admin))
	if _, err := client.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestFailedStartShowsLog(t *testing.T) {
	_, err := controlplane.Start(testContext(t), controlplane.Options{APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v", err)
	}
}
