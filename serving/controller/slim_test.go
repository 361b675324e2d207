package controller

import (
	"context"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// slimmed returns a client that reads pods as the controller's cache stores them.
func slimmed(c client.WithWatch) client.WithWatch {
	slim := func(p *v1.Pod) error {
		kept, err := slimPod(p)
		*p = *kept.(*v1.Pod)
		return err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			err := w.Get(ctx, key, o, options...)
			if p, isPod := o.(*v1.Pod); isPod && err == nil {
				return slim(p)
			}
			return err
		},
		List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, options ...client.ListOption) error {
			if err := w.List(ctx, l, options...); err != nil {
				return err
			}
			if pods, arePods := l.(*v1.PodList); arePods {
				for at := range pods.Items {
					if err := slim(&pods.Items[at]); err != nil {
						return err
					}
				}
			}
			return nil
		},
	})
}

// wholePod returns a pod of a function that is placed on a node, as the API server has it.
func wholePod(t *testing.T) *v1.Pod {
	t.Helper()
	f := function(t, func(f *api.GPUFunction) {
		server := &f.Spec.Template.Spec.Containers[0]
		server.Env = []v1.EnvVar{{Name: "MODEL", Value: "m"}}
		server.VolumeMounts = []v1.VolumeMount{{Name: "models", MountPath: "/models"}}
		f.Spec.Template.Spec.Volumes = []v1.Volume{{Name: "models", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		f.Spec.Template.Spec.Tolerations = []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpExists}}
		f.Spec.Template.Spec.SchedulerName = "gshare-scheduler"
	})
	p := functionPod(fastPodOf(f), "f-1", 1)
	p.UID, p.ManagedFields = "uid", []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	if err := setWanted(p, residency.Created(residency.Hot)); err != nil {
		t.Fatal(err)
	}
	return place(t, p, "node-1")
}

// TestSlimPod: what the controller derives from a pod with a node is the same for the slim pod as for the whole one.
func TestSlimPod(t *testing.T) {
	for name, change := range map[string]func(p *v1.Pod){
		"serves": makeReady,
		"listens elsewhere": func(p *v1.Pod) {
			makeReady(p)
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: kube.ServerPortName, ContainerPort: 9000}}
		},
		"starts for long": func(p *v1.Pod) {
			startContainer(p)
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}, v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse})
			p.Spec.Containers[0].StartupProbe = &v1.Probe{InitialDelaySeconds: 30, PeriodSeconds: 10, FailureThreshold: 60}
			p.Status.ContainerStatuses[0].Started = new(true)
		},
		"misses its probe": func(p *v1.Pod) {
			startContainer(p)
			p.Status.StartTime = new(metav1.NewTime(p.Status.Conditions[1].LastTransitionTime.Add(-time.Minute)))
		},
		"has not started": bind,
		"crashes":         crashes,
		"has crashed before": func(p *v1.Pod) {
			crashes(p)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 137}
		},
		"prepares in vain": func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "fetch", Image: "fetch"}}
			p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "fetch", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}}}
		},
		"has ended": func(p *v1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, "Evicted", "the node was low on memory"
		},
		"has a sidecar with a share": func(p *v1.Pod) {
			sidecar := *p.Spec.Containers[0].DeepCopy()
			sidecar.Name, sidecar.RestartPolicy = "sidecar", new(v1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = []v1.Container{sidecar}
		},
		"is cut": func(p *v1.Pod) {
			const stages = `{"version":1,"function":"f","stages":[[{"nodes":["a"],"slice":"server"}],[{"nodes":["b"],"slice":"gshare-stage-1"}]]}`
			p.Spec.Containers[0].Name = "server"
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, v1.EnvVar{Name: stagesVariable, Value: "{"}, v1.EnvVar{Name: stagesVariable, Value: stages})
			p.Spec.InitContainers = []v1.Container{{Name: "gshare-stage-1"}}
			setAnnotation(&p.ObjectMeta, kube.AnnotationContainerSlice+"server", "1g.10gb")
		},
		"asks as a pod": func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{kube.ResourceSM: resource.MustParse("10")}}
		},
		"asks beside its containers": func(p *v1.Pod) { p.Spec.Overhead = v1.ResourceList{kube.ResourceSM: resource.MustParse("10")} },
	} {
		t.Run(name, func(t *testing.T) {
			whole := wholePod(t)
			change(whole)
			kept, err := slimPod(whole.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			slim := kept.(*v1.Pod)
			for what, of := range map[string]func(p *v1.Pod) any{
				"identity":  func(p *v1.Pod) any { p = p.DeepCopy(); p.ManagedFields = nil; return p.ObjectMeta },
				"amount":    func(p *v1.Pod) any { return []any{amountOf(p), counts(p)} },
				"address":   func(p *v1.Pod) any { a, serves := addressOf(p); return []any{a, serves} },
				"waits":     func(p *v1.Pod) any { return []any{api.Failure(p), waitsFor(p)} },
				"end":       func(p *v1.Pod) any { return []any{kube.Ended(p), endOf(p)} },
				"overdue":   func(p *v1.Pod) any { at, limit := OverdueAt(p); return []any{at, limit, hasStarted(p)} },
				"unready":   func(p *v1.Pod) any { return unreadySince(p) },
				"cut":       func(p *v1.Pod) any { l, cut := layoutOf(p); return []any{l, cut, cutKeyOf(p)} },
				"turns":     func(p *v1.Pod) any { return []any{takesTurns(p), stageOf(p), awaitsTurn(p), startRefused(p)} },
				"placement": func(p *v1.Pod) any { placed, is, err := kube.PlacementOf(p); return []any{placed, is, err != nil} },
				"room": func(p *v1.Pod) any {
					return []any{roomOf(p), graceOf(p), p.Spec.NodeName, p.Spec.SchedulerName}
				},
			} {
				if got, want := of(slim), of(whole); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %+v, want %+v", what, got, want)
				}
			}
			if n := len(slim.Status.Conditions); n > 2 {
				t.Errorf("has %d conditions, want those that are read", n)
			}
			if c := slim.Spec.Containers[0]; c.Image != "" || c.VolumeMounts != nil || c.ReadinessProbe != nil || slim.Spec.Volumes != nil || slim.Spec.Tolerations != nil || slim.ManagedFields != nil {
				t.Errorf("has more than is read: %+v", slim)
			}
		})
	}
	t.Run("without a node", func(t *testing.T) {
		whole := wholePod(t)
		whole.Spec.NodeName = ""
		kept, err := slimPod(whole.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		if whole.ManagedFields = nil; !reflect.DeepEqual(kept, whole) {
			t.Errorf("%+v, want %+v", kept, whole)
		}
	})
}
