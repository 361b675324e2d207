package mig

import "fmt"

// models lists the known GPU models. Their placements are those that nvidia-smi mig -lgipp lists, which are equal on all GPUs with eight
// memory slices; the names of profiles are those of NVIDIA's page of supported profiles. FluidFaaS's table lacks the double-memory and +me
// profiles, and counts profiles although only placements determine what fits (U20).
var models = []*Model{
	sevenSliceModel("A100-40GB", []int{5, 10, 10, 20, 20, 40}, []int{14, 14, 28, 42, 56, 98}),
	sevenSliceModel("A100-80GB", []int{10, 20, 20, 40, 40, 80}, []int{14, 14, 28, 42, 56, 98}),
	fourSliceModel("A30-24GB", []int{6, 12, 24}, []int{14, 28, 56}),
	sevenSliceModel("H100-80GB", []int{10, 20, 20, 40, 40, 80}, []int{16, 26, 32, 60, 64, 132}),
	sevenSliceModel("H100-94GB", []int{12, 24, 24, 47, 47, 94}, make([]int, 6)),
	sevenSliceModel("H200-141GB", []int{18, 35, 35, 71, 71, 141}, make([]int, 6)),
	sevenSliceModel("B200-180GB", []int{23, 45, 45, 90, 90, 180}, make([]int, 6)),
}

// sevenSliceModel returns a GPU model with seven compute and eight memory slices. gb and sms are the memory and the SMs of the profiles 1g,
// 1g with double memory, 2g, 3g, 4g and 7g.
func sevenSliceModel(name string, gb, sms []int) *Model {
	anywhere := []int{0, 1, 2, 3, 4, 5, 6}
	return nameProfiles(&Model{Name: name, Compute: 7, Memory: 8, Profiles: []Profile{
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere},
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere, Media: true},
		{Compute: 1, Memory: 2, MemoryGB: gb[1], SMs: sms[1], Starts: []int{0, 2, 4, 6}},
		{Compute: 2, Memory: 2, MemoryGB: gb[2], SMs: sms[2], Starts: []int{0, 2, 4}},
		{Compute: 3, Memory: 4, MemoryGB: gb[3], SMs: sms[3], Starts: []int{0, 4}},
		{Compute: 4, Memory: 4, MemoryGB: gb[4], SMs: sms[4], Starts: []int{0}},
		{Compute: 7, Memory: 8, MemoryGB: gb[5], SMs: sms[5], Starts: []int{0}},
	}})
}

// fourSliceModel returns a GPU model with four compute and four memory slices. gb and sms are the memory and the SMs of the profiles 1g, 2g
// and 4g.
func fourSliceModel(name string, gb, sms []int) *Model {
	anywhere, halves := []int{0, 1, 2, 3}, []int{0, 2}
	return nameProfiles(&Model{Name: name, Compute: 4, Memory: 4, Profiles: []Profile{
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere},
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere, Media: true},
		{Compute: 2, Memory: 2, MemoryGB: gb[1], SMs: sms[1], Starts: halves},
		{Compute: 2, Memory: 2, MemoryGB: gb[1], SMs: sms[1], Starts: halves, Media: true},
		{Compute: 4, Memory: 4, MemoryGB: gb[2], SMs: sms[2], Starts: []int{0}},
	}})
}

// nameProfiles sets the names of the model's MIG profiles from their sizes, and returns the model.
func nameProfiles(m *Model) *Model {
	for i := range m.Profiles {
		p := &m.Profiles[i]
		p.Name = fmt.Sprintf("%dg.%dgb", p.Compute, p.MemoryGB)
		if p.Media {
			p.Name += "+me"
		}
	}
	return m
}
