package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// What slices have, what is promised of it, and to whom: for density and for charging namespaces. SM-time is in slices: 1 is all SMs
// of a slice for all of the time, so its integral over time is in share-seconds.
var (
	sliceDesc        = prometheus.NewDesc("gshare_node_slice_info", "The slices of the node.", []string{"slice", "model", "profile"}, nil)
	sliceMemoryDesc  = prometheus.NewDesc("gshare_node_slice_memory_bytes", "Device memory that shares may take together.", []string{"slice"}, nil)
	sliceSMTimeDesc  = prometheus.NewDesc("gshare_node_slice_sm_time_promised_ratio", "Part of the SMs times time that is granted.", []string{"slice"}, nil)
	sliceSharesDesc  = prometheus.NewDesc("gshare_node_slice_shares", "Shares that are granted on a slice.", []string{"slice"}, nil)
	grantSMTimeDesc  = prometheus.NewDesc("gshare_node_grant_sm_time_ratio", "SMs times time of slices that a container has reserved.", grantLabels, nil)
	grantMemoryDesc  = prometheus.NewDesc("gshare_node_grant_memory_bytes", "Device memory that a container has reserved.", grantLabels, nil)
	grantLabels      = []string{"container", "namespace", "pod", "name"}
	wholeSMTimeSlice = float64(share.Whole) * float64(share.Whole)
)

// collectShares shows what is promised. The caller holds the lock.
func collectShares(out chan<- prometheus.Metric, grants []grant.Grant, slices []inventory.Slice) {
	smTime, count := map[string]float64{}, map[string]int{}
	for _, g := range grants {
		sum, memory := 0.0, share.Bytes(0)
		for _, v := range g.VGPUs {
			part := smTimeOf(v)
			smTime[v.Slice] += part
			count[v.Slice]++
			sum, memory = sum+part, memory+v.Share.Memory
		}
		out <- gauge(grantSMTimeDesc, sum, g.ID(), g.Namespace, g.Name, g.Container)
		out <- gauge(grantMemoryDesc, float64(memory), g.ID(), g.Namespace, g.Name, g.Container)
	}
	for _, s := range slices {
		out <- gauge(sliceDesc, 1, s.ID, s.Model, s.Profile)
		out <- gauge(sliceMemoryDesc, float64(s.MemoryMiB)*float64(share.MiB), s.ID)
		out <- gauge(sliceSMTimeDesc, smTime[s.ID], s.ID)
		out <- gauge(sliceSharesDesc, float64(count[s.ID]), s.ID)
	}
}

func smTimeOf(v kube.PlacedVGPU) float64 {
	return float64(v.Share.SMRequest) * float64(v.Share.QuotaRequest) / wholeSMTimeSlice
}
