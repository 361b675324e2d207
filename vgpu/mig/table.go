package mig

import "fmt"

// The placements are those that nvidia-smi mig -lgipp lists; they are equal on all GPUs with eight memory slices. The names
// follow NVIDIA's page of supported profiles. FluidFaaS's table leaves out the double-memory and +me profiles, and counts
// profiles where only positions say what fits (U20).
var models = []*Model{
	sevenths("A100-40GB", []int{5, 10, 10, 20, 20, 40}, []int{14, 14, 28, 42, 56, 98}),
	sevenths("A100-80GB", []int{10, 20, 20, 40, 40, 80}, []int{14, 14, 28, 42, 56, 98}),
	quarters("A30-24GB", []int{6, 12, 24}, []int{14, 28, 56}),
	sevenths("H100-80GB", []int{10, 20, 20, 40, 40, 80}, []int{16, 26, 32, 60, 64, 132}),
	sevenths("H100-94GB", []int{12, 24, 24, 47, 47, 94}, make([]int, 6)),
	sevenths("H200-141GB", []int{18, 35, 35, 71, 71, 141}, make([]int, 6)),
	sevenths("B200-180GB", []int{23, 45, 45, 90, 90, 180}, make([]int, 6)),
}

// sevenths describes a GPU of seven compute and eight memory slices by the memory and the SMs of 1g, 1g with double memory,
// 2g, 3g, 4g and 7g.
func sevenths(name string, gb, sms []int) *Model {
	anywhere := []int{0, 1, 2, 3, 4, 5, 6}
	return named(&Model{Name: name, Compute: 7, Memory: 8, Profiles: []Profile{
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere},
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere, Media: true},
		{Compute: 1, Memory: 2, MemoryGB: gb[1], SMs: sms[1], Starts: []int{0, 2, 4, 6}},
		{Compute: 2, Memory: 2, MemoryGB: gb[2], SMs: sms[2], Starts: []int{0, 2, 4}},
		{Compute: 3, Memory: 4, MemoryGB: gb[3], SMs: sms[3], Starts: []int{0, 4}},
		{Compute: 4, Memory: 4, MemoryGB: gb[4], SMs: sms[4], Starts: []int{0}},
		{Compute: 7, Memory: 8, MemoryGB: gb[5], SMs: sms[5], Starts: []int{0}},
	}})
}

// quarters describes a GPU of four compute and four memory slices by the memory and the SMs of 1g, 2g and 4g.
func quarters(name string, gb, sms []int) *Model {
	anywhere, halves := []int{0, 1, 2, 3}, []int{0, 2}
	return named(&Model{Name: name, Compute: 4, Memory: 4, Profiles: []Profile{
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere},
		{Compute: 1, Memory: 1, MemoryGB: gb[0], SMs: sms[0], Starts: anywhere, Media: true},
		{Compute: 2, Memory: 2, MemoryGB: gb[1], SMs: sms[1], Starts: halves},
		{Compute: 2, Memory: 2, MemoryGB: gb[1], SMs: sms[1], Starts: halves, Media: true},
		{Compute: 4, Memory: 4, MemoryGB: gb[2], SMs: sms[2], Starts: []int{0}},
	}})
}

func named(m *Model) *Model {
	for i := range m.Profiles {
		p := &m.Profiles[i]
		p.Name = fmt.Sprintf("%dg.%dgb", p.Compute, p.MemoryGB)
		if p.Media {
			p.Name += "+me"
		}
	}
	return m
}
