package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/vgpu/api/strictyaml"
)

// applicationsFile is the file of applications that gshare plan reads. The file of prices is a planning.PriceBook. Both may be JSON, which is
// valid YAML.
type applicationsFile struct {
	Applications []planning.Application `json:"applications"`
}

func (p *planFlags) read() error {
	var applications applicationsFile
	prices := planning.NewPriceBook()
	err := errors.Join(
		readPlanFile("--applications", p.applications, &applications),
		readPlanFile("--prices", p.prices, &prices),
	)
	profiles := &planProfiles{}
	if len(p.profiles) == 0 {
		err = errors.Join(err, errors.New("--profiles is required"))
	}
	for _, file := range p.profiles {
		err = errors.Join(err, profiles.read(file))
	}
	if err != nil {
		return err
	}
	if p.notes, err = profiles.complete(applications.Applications); err != nil {
		return fmt.Errorf("--profiles: %w", err)
	}
	models, joined, err := planning.JoinTemplates(profiles.catalogue, prices.Prices, prices.Platform)
	if err != nil {
		return fmt.Errorf("--profiles: %w", err)
	}
	for _, j := range joined {
		p.notes = append(p.notes, j.String())
	}
	p.input = planning.Input{
		Applications: applications.Applications, Models: models, Modes: planning.Modes(),
		Prices: prices.Prices, Platform: prices.Platform,
	}
	if p.modes != "all" {
		p.input.Modes = nil
		for name := range strings.SplitSeq(p.modes, ",") {
			p.input.Modes = append(p.input.Modes, planning.Mode(name))
		}
	}
	return p.input.Validate()
}

// readPlanFile decodes an input file of gshare plan. Unknown fields are errors, because a misspelled price would otherwise be zero.
func readPlanFile(flag, path string, into any) error {
	if path == "" {
		return fmt.Errorf("%s is required", flag)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return fmt.Errorf("%s %s: is empty", flag, path)
	}
	if err := strictyaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return nil
}
