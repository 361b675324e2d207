package kube

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// wholeSMTime is the gshare/sm-time of one slice: 100 percent of its SMs for 100 percent of every window.
const wholeSMTime = 100 * 100

// NodeResources returns the extended resources that a node with this inventory advertises. Unhealthy slices count too, because resources must not
// shrink while pods are bound.
//
// mem and sm-time are true capacity; a GPU whose MIG instances are made on demand counts with the least that it can offer. The sm and the quota of
// shares do not add up, so each device ID (device ID of gshare/vgpu) adds its maximum of 100 to each of them, and neither limits the number of pods. The
// device plugin registers vgpu; the agent patches the others into the node's status.
//
// The result also includes what the given pods of the node request but have given up: the sm-time of pods below Hot, and the mem of parked ones.
// kube-scheduler's NodeResourcesFit and the kubelet add up the requests of all pods, and would otherwise refuse the pods for which it was given up.
// For pods of class swap it includes everything that they request, because their requests do not add up; gshare-scheduler and the agent account for
// what such pods take of a slice from others.
func NodeResources(inv Inventory, pods ...*v1.Pod) v1.ResourceList {
	var deviceIDs, memory, slices int64
	for _, n := range DeviceIDs(inv) {
		deviceIDs += int64(n)
	}
	for _, least := range guaranteedCapacities(withDefaults(inv.Slices)) {
		memory += least.memory
		slices += least.slices
	}
	return v1.ResourceList{
		ResourceVGPU:   quantity(deviceIDs),
		ResourceMemory: quantity(memory + givenUpMemory(pods)),
		ResourceSMTime: quantity(slices*wholeSMTime + givenUpSMTime(pods)),
		ResourceSM:     quantity(100 * deviceIDs),
		ResourceQuota:  quantity(100 * deviceIDs),
	}
}

// givenUpSMTime returns the gshare/sm-time that bound pods request but that is not counted on their slices.
func givenUpSMTime(pods []*v1.Pod) (sum int64) {
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || Ended(pod) || LevelOf(pod) == residency.Hot && !TakesTurns(pod) {
			continue
		}
		requests := helper.PodRequests(pod, helper.PodResourcesOptions{})
		sum += requests.Name(ResourceSMTime, resource.DecimalSI).Value()
	}
	return sum
}

// givenUpMemory returns the gshare/mem, in MiB, that bound pods request but that is not counted on their slices, because they are parked.
func givenUpMemory(pods []*v1.Pod) (sum int64) {
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || Ended(pod) || LevelOf(pod) != residency.Warm && !TakesTurns(pod) {
			continue
		}
		requests := helper.PodRequests(pod, helper.PodResourcesOptions{})
		vgpus := requests.Name(ResourceVGPU, resource.DecimalSI).Value()
		kept := (KeptOf(pod) + share.MiB - 1) / share.MiB
		if TakesTurns(pod) {
			kept = 0
		}
		sum += max(0, requests.Name(ResourceMemory, resource.DecimalSI).Value()-int64(kept)*vgpus)
	}
	return sum
}

// RequestedResource returns how much of an extended resource the pods of a node request together, added up as kube-scheduler and the kubelet do it,
// whatever their levels.
func RequestedResource(name v1.ResourceName, pods []*v1.Pod) resource.Quantity {
	sum := int64(0)
	for _, pod := range pods {
		if !Ended(pod) {
			requests := helper.PodRequests(pod, helper.PodResourcesOptions{})
			sum += requests.Name(name, resource.DecimalSI).Value()
		}
	}
	return quantity(sum)
}

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// capacity is a number of slices and their total memory in MiB.
type capacity struct{ slices, memory int64 }

// DeviceIDs returns the number of device IDs (of gshare/vgpu) for each slice of the inventory. Not all positions for MIG instances that are
// made on demand can be used at once. So only the first positions of each device get device IDs: as many as the fewest instances that can fill it.
func DeviceIDs(inv Inventory) []int {
	slices := withDefaults(inv.Slices)
	left := map[string]int64{}
	for device, l := range positionsByDevice(slices) {
		left[device] = minCapacity(l).slices
	}
	out := make([]int, len(slices))
	for i, s := range slices {
		if s.Room == 0 {
			out[i] = s.MaxShares
		} else if left[s.Device] > 0 {
			left[s.Device]--
			out[i] = s.MaxShares
		}
	}
	return out
}

// guaranteedCapacities returns the capacity of each existing slice and, for each device whose MIG instances are made on demand, the smallest capacity
// that its layout can come to have.
func guaranteedCapacities(slices []Slice) (all []capacity) {
	for _, s := range slices {
		if s.Room == 0 {
			all = append(all, capacity{1, s.MemoryMiB})
		}
	}
	for _, positions := range positionsByDevice(slices) {
		all = append(all, minCapacity(positions))
	}
	return all
}

// positionsByDevice groups by device the slices that stand for positions at which a MIG instance can be made on demand.
func positionsByDevice(slices []Slice) map[string][]Slice {
	positions := map[string][]Slice{}
	for _, s := range slices {
		if s.Room != 0 {
			positions[s.Device] = append(positions[s.Device], s)
		}
	}
	return positions
}

// minCapacity returns the smallest number of instances, and the smallest total memory, over all ways to fill a device with MIG instances until no
// other fits. The two minima may come from different layouts. A device has at most eight memory slices, so there are at most 256 sets of occupied
// ones to look at.
func minCapacity(positions []Slice) capacity {
	var known [256]*capacity
	var fill func(taken uint8) capacity
	fill = func(taken uint8) capacity {
		if known[taken] != nil {
			return *known[taken]
		}
		worst, full := capacity{}, true
		for _, p := range positions {
			if p.Room&taken != 0 {
				continue
			}
			rest := fill(taken | p.Room)
			with := capacity{rest.slices + 1, rest.memory + p.MemoryMiB}
			if full {
				worst, full = with, false
			}
			worst = capacity{min(worst.slices, with.slices), min(worst.memory, with.memory)}
		}
		known[taken] = &worst
		return worst
	}
	return fill(0)
}
