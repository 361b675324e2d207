package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/lab/dataset"
	"github.com/gshare-dev/gshare/lab/shapes"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	openbFamily = "openb" // draws from the pods of openb that request a part of one GPU
	openbNodes  = dataset.Prefix + "openb/openb_node_list_gpu_node.csv"
	openbPods   = dataset.Prefix + "openb/openb_pod_list_default.csv"
)

func shapesFamilies() []string { return slices.Sorted(maps.Keys(shapes.Families())) }

func shapesFamilyHelp() string {
	return strings.Join(shapesFamilies(), ", ") + ", " + openbFamily + ", or a CSV file to draw from: quota,sm,mem in percent, percent and MiB"
}

func (s *shapesSimulation) readFamily() (err error) {
	family, known := shapes.Families()[s.familyName]
	var pods []shapes.Pod
	switch {
	case known:
		s.family = family
		return nil
	case s.familyName == openbFamily:
		pods, err = readOpenb(s.openbPods)
	case strings.HasSuffix(s.familyName, ".csv"):
		pods, err = s.readShapes(s.familyName)
	default:
		err = fmt.Errorf("--family: unknown family %q: must be one of %s, %s, or a .csv file", s.familyName, strings.Join(shapesFamilies(), ", "), openbFamily)
	}
	s.family = shapes.SampleOf(pods)
	return err
}

func (s *shapesSimulation) readShapes(file string) ([]shapes.Pod, error) {
	text, err := dataset.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pods, err := shapes.Parse(string(text), share.Bytes(s.memoryGiB)<<30)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return pods, nil
}

// readOpenb returns those pods of an openb pod list that request a fraction of one GPU.
func readOpenb(file string) ([]shapes.Pod, error) {
	list, err := trace.ReadPods(file)
	if err != nil {
		return nil, err
	}
	var pods []shapes.Pod
	for _, p := range list {
		if p.GPUs == 1 && p.MilliGPU < 1000 {
			pods = append(pods, shapes.OfMilliGPU(int(p.MilliGPU)))
		}
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("%s: no pod requests a part of one GPU", file)
	}
	return pods, nil
}
