package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/serving/api/profileview"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/api/strictyaml"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// planProfiles holds the profiles of gshare plan, which come from files of different forms.
type planProfiles struct {
	catalogue planning.Catalogue
	objects   []api.GPUProfile
	records   []machineProfile
}

// machineProfile is what gshare profile has measured on one machine, with the name of its file.
type machineProfile struct {
	file string
	*profiler.Record
}

// read adds the profiles of a file.
func (p *planProfiles) read(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--profiles: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return fmt.Errorf("--profiles %s: is empty", file)
	}
	if err := p.decode(file, text); err != nil {
		return fmt.Errorf("--profiles %s: %w", file, err)
	}
	return nil
}

func (p *planProfiles) decode(file string, text []byte) error {
	switch formOf(text) {
	case objectForm:
		found, err := profileview.Decode(bytes.NewReader(text))
		p.objects = append(p.objects, found...)
		return err
	case machineForm:
		r, err := decodeRecord(text)
		p.records = append(p.records, machineProfile{file, r})
		return err
	}
	var c planning.Catalogue
	if err := strictyaml.Unmarshal(text, &c); err != nil {
		return err
	}
	p.catalogue.Models = append(p.catalogue.Models, c.Models...)
	p.catalogue.Chains = append(p.catalogue.Chains, c.Chains...)
	return nil
}

// complete adds to the catalogue the models of applications that it lacks and that a GPUProfile or gshare profile has measured. It returns notes
// about each of them. It leaves out models without any profile, which planning.Input.Validate reports.
func (p *planProfiles) complete(applications []planning.Application) (notes []string, err error) {
	for _, a := range applications {
		if slices.ContainsFunc(p.catalogue.Models, func(m profile.Model) bool { return m.Name == a.Model }) {
			continue
		}
		m, source, err := p.measured(a.Model)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		p.catalogue.Models = append(p.catalogue.Models, m.Model)
		for _, note := range m.Notes(source) {
			notes = append(notes, a.Model+": "+note)
		}
	}
	return notes, nil
}

// measured returns the measurements of a model, and the source that they come from. There must be only one source. It returns nil if there is
// none.
func (p *planProfiles) measured(model string) (m *profileview.Measured, source string, err error) {
	var sources []string
	var fits []func() (*profileview.Measured, error)
	for i := range p.objects {
		if o := &p.objects[i]; model == o.Name || model == profileview.Name(o) {
			sources = append(sources, "GPUProfile "+profileview.Name(o))
			fits = append(fits, func() (*profileview.Measured, error) { return profileview.Fit(model, o, kube.DefaultWindow) })
		}
	}
	for _, r := range p.records {
		if r.Model == model {
			sources = append(sources, r.file)
			fits = append(fits, func() (*profileview.Measured, error) { return fitRecord(r.Record) })
		}
	}
	switch len(fits) {
	case 0:
		return nil, "", nil
	case 1:
		if m, err = fits[0](); err != nil {
			return nil, "", fmt.Errorf("%s: %w", sources[0], err)
		}
		return m, sources[0], nil
	}
	return nil, "", fmt.Errorf("there are %d profiles of model %.64q, want 1: %s; a model may be namespace/name of a GPUProfile", len(fits), model, strings.Join(sources, ", "))
}

// fitRecord fits a model to the latencies on shares that gshare profile has measured.
func fitRecord(r *profiler.Record) (*profileview.Measured, error) {
	if r.Plan.Progress > 0 {
		return nil, errors.New("a program that answers no requests has no latencies")
	}
	points := r.Points()
	if len(points) == 0 {
		return nil, errors.New("it has no trial in which the server ran")
	}
	gpu := points[0].Resource.Device
	strategy := strategyOf(&r.Plan, time.Duration(float64(r.Plan.SLO)*float64(time.Second)), gpu)
	if strategy == nil {
		return nil, fmt.Errorf("plan.strategy: %.64q is not growth, bisection or grid", r.Plan.Strategy)
	}
	best, err := r.Recommend(strategy)
	if err != nil {
		return nil, fmt.Errorf("it recommends no share: %w", err)
	}
	shares, worst, err := profile.FitShare(points, best.Batch, profile.Seconds(kube.DefaultWindow.Seconds()), max(best.Memory, leastMemory*share.MiB))
	if err != nil {
		return nil, err
	}
	return &profileview.Measured{Model: profile.Model{Name: r.Model, Share: shares}, GPU: gpu, Error: worst, Ended: !r.Complete}, nil
}
