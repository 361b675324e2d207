package live

import (
	"encoding/json"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Annotations of nodes and pods by plugins that place pods on GPUs themselves.
const (
	hamiNode, hamiPod           = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated"
	volcanoNode, volcanoPod     = "volcano.sh/node-vgpu-register", "volcano.sh/vgpu-ids-new"
	koordinatorPod              = "scheduling.koordinator.sh/device-allocated"
	annotationFraction          = "gpu-fraction" // of KAI and Run:ai
	annotationFractionMemory    = "gpu-memory"   // MiB
	annotationFractionDevices   = "gpu-fraction-num-devices"
	annotationFractionContainer = "gpu-fraction-container-name"
	labelGroup                  = "runai-gpu-group"
)

// listedDevice is a GPU in the list that a device plugin writes to its node.
type listedDevice struct {
	id, model string
	memory    int64 // MiB
}

// registered returns the GPUs that the plugin of HAMi or Volcano lists on the node, or none.
func registered(n *v1.Node) (list []listedDevice) {
	for _, key := range []string{hamiNode, volcanoNode} {
		text := n.Annotations[key]
		var entries []struct {
			ID     string `json:"id"`
			Memory int64  `json:"devmem"`
			Type   string `json:"type"`
		}
		if json.Unmarshal([]byte(text), &entries) == nil {
			for _, e := range entries {
				list = append(list, listedDevice{e.ID, modelOf(e.Type), max(0, min(e.Memory, maxLabel))})
			}
			continue
		}
		// As in HAMi before JSON: ID, slots, memory, and further fields, of which one is the model.
		for entry := range strings.SplitSeq(text, ":") {
			if fields := strings.Split(entry, ","); len(fields) > 3 {
				list = append(list, listedDevice{fields[0], modelOf(firstName(fields[3:])), parseNumber(fields[2])})
			}
		}
	}
	return list
}

// firstName returns the first field that is neither a number nor a truth value.
func firstName(fields []string) string {
	for _, f := range fields {
		_, number := strconv.ParseFloat(f, 64)
		_, truth := strconv.ParseBool(f)
		if number != nil && truth != nil {
			return f
		}
	}
	return ""
}

// modelOf returns a model as feature discovery writes it, from the type in a list: that repeats the vendor, and has blanks.
func modelOf(kind string) string {
	return strings.ReplaceAll(strings.Replace(kind, "NVIDIA-NVIDIA", "NVIDIA", 1), " ", "-")
}

// listedDevicesOf returns the GPUs that the scheduler of HAMi, Volcano or Koordinator wrote on the pod, each as often as a container
// uses it. It returns none if any of HAMi's or Volcano's is not in the node's list.
func (g *gpuNode) listedDevicesOf(pod *v1.Pod) (devices []string) {
	for _, key := range []string{hamiPod, volcanoPod} {
		for _, entry := range strings.FieldsFunc(pod.Annotations[key], func(r rune) bool { return r == ';' || r == ':' }) {
			id, _, _ := strings.Cut(entry, ",")
			id, _, _ = strings.Cut(id, "[") // the MIG instance
			device, ok := g.devices[id]
			if !ok {
				return nil
			}
			devices = append(devices, device)
		}
	}
	var allocated struct {
		GPU []struct{ Minor int }
	}
	if len(devices) == 0 && json.Unmarshal([]byte(pod.Annotations[koordinatorPod]), &allocated) == nil {
		for _, gpu := range allocated.GPU {
			devices = append(devices, strconv.Itoa(gpu.Minor))
		}
	}
	return devices
}
