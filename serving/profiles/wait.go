package profiles

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/serving/controller"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
)

// waitForServer waits until the server is ready. One that needs too long does not run on its share. One that does not even start on its node, for want of
// its image for instance, starts on no other share either, and would hold a GPU all the time.
func (s *state) waitForServer(status *api.GPUProfileStatus, target *v1.Pod) decision {
	why := cmp.Or(api.Failure(target), api.WaitsFor(target))
	at, limit := controller.OverdueAt(target)
	left := at.Sub(s.now)
	switch {
	case at.IsZero(): // it has no node yet
		left = 0
	case left > 0:
	case isRunning(target):
		return s.fail(status, "the server was not ready within "+limit.String())
	default:
		return s.halt(status, "the server has not started within "+limit.String()+": "+why)
	}
	s.set(status, metav1.ConditionFalse, api.ReasonStarting, "server: "+why)
	made := s.write(status)
	made.after = left
	return made
}

func isRunning(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.Name == p.Spec.Containers[0].Name && c.State.Running != nil
	})
}

// clientLimit is the time within which a client has to start. Its own deadline only begins on a node, and the server holds a GPU meanwhile.
const clientLimit = time.Hour

// waitForClient waits until the client runs.
func (s *state) waitForClient(status *api.GPUProfileStatus, client *v1.Pod) decision {
	why := cmp.Or(api.Failure(client), api.WaitsFor(client))
	left := client.CreationTimestamp.Add(clientLimit).Sub(s.now)
	if left <= 0 {
		return s.halt(status, "the client has not started within "+clientLimit.String()+": "+why)
	}
	s.set(status, metav1.ConditionFalse, api.ReasonStarting, "client: "+why)
	made := s.write(status)
	made.after = left
	return made
}
