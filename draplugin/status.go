package draplugin

import (
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Types of the conditions in the status of a claim's devices.
const (
	// ConditionReady is True once the share is granted.
	//
	//	kind: condition
	//	object: device in the status of a ResourceClaim
	//	written by: node agent
	//	values: True
	ConditionReady = "Ready"

	// ConditionEnforced is True while the whole share is enforced. Otherwise the message says what is not.
	//
	//	kind: condition
	//	object: device in the status of a ResourceClaim
	//	written by: node agent
	//	values: True, False
	ConditionEnforced = "Enforced"
)

// maxData is the maximum length of the data of a device's status.
const maxData = 10 << 10

// Share says how the part of a device that a claim has is enforced.
type Share struct {
	Slice       string // ID of the slice
	ShareID     types.UID
	Since       metav1.Time // when the share was granted
	Changed     metav1.Time // when Missing last changed
	Missing     string      // what is not enforced; empty if all is
	Enforcement string      // the enforcement status, in JSON
}

// DeviceStatus returns the status of a claim's device in the pool of the node.
func DeviceStatus(node string, s Share) resourceapi.AllocatedDeviceStatus {
	enforced := metav1.Condition{
		Type: ConditionEnforced, Status: metav1.ConditionTrue, Reason: "AllLimitsHold", LastTransitionTime: s.Changed,
	}
	if s.Missing != "" {
		enforced.Status, enforced.Reason, enforced.Message = metav1.ConditionFalse, "LimitsMissing", s.Missing
	}
	status := resourceapi.AllocatedDeviceStatus{
		Driver: Driver, Pool: node, Device: DeviceName(s.Slice), ShareID: new(string(s.ShareID)),
		Conditions: []metav1.Condition{
			{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: "ShareGranted", LastTransitionTime: s.Since}, enforced,
		},
	}
	if len(s.Enforcement) <= maxData {
		status.Data = &runtime.RawExtension{Raw: []byte(s.Enforcement)}
	}
	return status
}

// StatusPatch returns the server-side apply patch that sets the given devices of this driver in the status of a claim. It leaves the
// devices of other drivers alone. The API server rejects it if the claim now has another UID.
func StatusPatch(claim types.NamespacedName, uid types.UID, devices []resourceapi.AllocatedDeviceStatus) ([]byte, error) {
	return json.Marshal(map[string]any{
		"apiVersion": resourceapi.SchemeGroupVersion.String(), "kind": "ResourceClaim",
		"metadata": map[string]any{"namespace": claim.Namespace, "name": claim.Name, "uid": uid},
		"status":   map[string]any{"devices": devices},
	})
}
