package v1alpha1

import (
	"errors"
	"fmt"
	"time"
)

const maxGammaPercent = 1000

// Validate returns an error that names every argument that is out of range. Call it after Default.
func (a *SharingArgs) Validate() error {
	var errs []error
	if *a.GammaPercent < 100 || *a.GammaPercent > maxGammaPercent {
		errs = append(errs, fmt.Errorf("gammaPercent: %d is not between 100 and %d", *a.GammaPercent, maxGammaPercent))
	}
	if *a.CandidateNodes < 0 {
		errs = append(errs, fmt.Errorf("candidateNodes: %d is negative", *a.CandidateNodes))
	}
	if a.Tenancy != Namespace && a.Tenancy != Mixed {
		errs = append(errs, fmt.Errorf("tenancy: %q is neither %q nor %q", a.Tenancy, Namespace, Mixed))
	}
	if w := a.Window; w != nil && (w.Duration < 10*time.Millisecond || time.Second%w.Duration != 0) {
		errs = append(errs, fmt.Errorf("window: %v does not divide a second into parts of 10ms or more", w.Duration))
	}
	return errors.Join(errs...)
}

// Validate returns an error that names every argument that is out of range. Call it after Default.
func (a *ComplementaryPackingArgs) Validate() error {
	errs := []error{a.SharingArgs.Validate()}
	alpha, beta := *a.AlphaPercent, *a.BetaPercent
	if alpha < 0 || alpha > 100 || alpha+beta != 100 {
		errs = append(errs, fmt.Errorf("alphaPercent: %d and betaPercent: %d do not add up to 100", alpha, beta))
	}
	return errors.Join(errs...)
}
