package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/deviceid"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/kubelet"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// OfferedToClaims returns what the node offers to resource claims now.
func (a *Agent) OfferedToClaims() draplugin.Offer { return a.devices.offered() }

// claimHealthTimeout is the minimum time for which the devices of claims count as healthy after the driver's last answer. It is the
// kubelet's default.
const claimHealthTimeout = 30 * time.Second

// claimPatience is how long the preparation of a claim is retried after errors that may pass soon, such as a predecessor that has not ended
// yet. The kubelet allows 45 s, and after an error tries the pod again only a minute or more later.
const claimPatience = 20 * time.Second

// PrepareClaim grants the share that the scheduler has allocated to a resource claim to the container that uses the claim, and returns the
// container's CDI device. It may be called again. After an error the kubelet does not start the pod, and calls again.
func (a *Agent) PrepareClaim(ctx context.Context, claim *resourceapi.ResourceClaim, parts []draplugin.Part) (cdiDevice string, err error) {
	deviceIDs := grant.ClaimDeviceIDs(claim.UID, len(parts))
	err = a.granter.grantSoon(ctx, claimPatience, deviceIDs, func(ctx context.Context) (grant.Claim, error) {
		c, err := a.containerOfClaim(ctx, claim)
		if err != nil {
			return c, err
		}
		c.DeviceIDs, c.ResourceClaim = deviceIDs, grant.ResourceClaim{UID: claim.UID, Name: claim.Name}
		for _, part := range parts {
			c.ResourceClaim.ShareIDs = append(c.ResourceClaim.ShareIDs, part.ShareID)
		}
		if c.Allocated, err = a.allocated(c, parts); err != nil {
			return c, err
		}
		return c, a.granter.admit(c)
	})
	return cdi.Name(deviceid.Key(deviceIDs)), err
}

// allocated returns the vGPUs of a container's resource claim. If the container has been granted them already, they stay as they are, even
// if their slices are no longer offered. A grant by the claim to an earlier pod belongs to an earlier allocation, and does not count.
func (a *Agent) allocated(c grant.Claim, parts []draplugin.Part) ([]kube.PlacedVGPU, error) {
	granted, ok := a.granter.grants.ofClaim(c.ResourceClaim.UID)
	if ok && granted.Owner == c.Owner() && slices.Equal(granted.ResourceClaim.ShareIDs, c.ResourceClaim.ShareIDs) {
		return granted.VGPUs, nil
	}
	return draplugin.Placed(parts, a.devices.offered().Slices)
}

// containerOfClaim returns the one container that may use a claim, with its pod.
func (a *Agent) containerOfClaim(ctx context.Context, claim *resourceapi.ResourceClaim) (c grant.Claim, _ error) {
	users := claim.Status.ReservedFor
	if len(users) != 1 || users[0].APIGroup != "" || users[0].Resource != "pods" {
		return c, fmt.Errorf("the claim is reserved for %d users, and a share is of one pod: use a ResourceClaimTemplate", len(users))
	}
	pod, err := a.Pods.Get(ctx, users[0].UID)
	if errors.Is(err, kubelet.ErrNoPod) || err == nil && kube.Ended(pod) {
		return c, fmt.Errorf("pod %s, for which the claim is reserved, does not run on this node", users[0].Name)
	}
	if err != nil {
		return c, err
	}
	c.Pod = pod
	names := claimNames(pod, claim)
	if len(names) == 0 {
		return c, grant.Unsafe("the pod does not list the claim in its resourceClaims")
	}
	containers, err := usersOf(pod, names)
	if err != nil {
		return c, err
	}
	if len(containers) != 1 {
		return c, grant.Unsafe("containers %v use one claim, and a share is of one container: give each a claim of its own", containers)
	}
	c.Container = containers[0]
	return c, nil
}

// podClaimAnnotation is the annotation of a claim made from a template that names the entry in the pod's resourceClaims.
const podClaimAnnotation = "resource.kubernetes.io/pod-claim-name"

// claimNames returns the names under which a pod refers to a claim, because the pod names the claim or because the claim was made for it
// from a template.
func claimNames(pod *v1.Pod, claim *resourceapi.ResourceClaim) (names []string) {
	owned := slices.ContainsFunc(claim.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == pod.UID })
	for _, c := range pod.Spec.ResourceClaims {
		named := c.ResourceClaimName != nil && *c.ResourceClaimName == claim.Name
		made := c.ResourceClaimTemplateName != nil && owned && claim.Annotations[podClaimAnnotation] == c.Name
		if claim.Namespace == pod.Namespace && (named || made) {
			names = append(names, c.Name)
		}
	}
	return names
}

// usersOf returns the containers of a pod that use one of its resource claims. It returns a refusal for an init container that ends before
// the others start, as another container would then need its share.
func usersOf(pod *v1.Pod, claims []string) (containers []string, _ error) {
	uses := func(c *v1.Container) bool {
		return slices.ContainsFunc(c.Resources.Claims, func(r v1.ResourceClaim) bool { return slices.Contains(claims, r.Name) })
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if !uses(c) {
			continue
		}
		if c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways {
			return nil, grant.Unsafe("init container %s uses a claim: only containers that run as long as the pod can have a share", c.Name)
		}
		containers = append(containers, c.Name)
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; uses(c) {
			containers = append(containers, c.Name)
		}
	}
	return containers, nil
}

// UnprepareClaim releases the share of a resource claim. It does nothing if the claim has none. It returns an error while processes of the
// claim's pod live, and the kubelet calls again.
func (a *Agent) UnprepareClaim(_ context.Context, claim types.UID) error {
	granted, ok := a.granter.grants.ofClaim(claim)
	if !ok {
		return nil
	}
	running, err := podsWithProcesses()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	if running[granted.UID] {
		return fmt.Errorf("processes of pod %s still run", granted.Name)
	}
	a.granter.release(granted)
	if _, left := a.granter.grants.ofClaim(claim); left {
		return fmt.Errorf("the share of pod %s could not be released; the agent's log says why", granted.Name)
	}
	return nil
}
