package planner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/api/strictyaml"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// problem is the reason why there is no plan.
type problem struct{ reason, message string }

func (p *problem) Error() string { return p.message }

// problemf returns a problem. reason is a reason of the condition Planned.
func problemf(reason, format string, args ...any) *problem {
	return &problem{reason, fmt.Sprintf(format, args...)}
}

// data is what a plan depends on besides its functions.
type data struct {
	models []profile.Model // only that of the plan
	prices planning.PriceList
	terms  planning.Platform
	notes  []string
	hash   string // of all this as it was read, of the modes, and of the rates set in the specification
}

// remembered holds the data of a plan as it was last read and decoded: it is read every few seconds, and decoding or joining it may take a second.
type remembered struct {
	catalogue reading[planning.Catalogue]
	joined    reading[data]
}

// reading is a value made from some texts, or the error of making it.
type reading[T any] struct {
	hash  string // of the texts
	value T
	err   error
}

// of returns the value made from the given texts. It makes it again only if the texts have changed.
func (m *reading[T]) of(make func() (T, error), texts ...string) (T, error) {
	if hash := hashOf(texts...); hash != m.hash {
		m.value, m.err = make()
		m.hash = hash
	}
	return m.value, m.err
}

// readData reads the profiles and prices of a plan. If the profiles do not include the model, it takes what GPUProfiles have measured. Its errors are those
// of the API server, and *problem.
func readData(ctx context.Context, c client.Reader, plan *api.InferencePlan, last *remembered) (data, error) {
	var profiles string
	var err error
	if plan.Spec.Profiles.ConfigMap != "" {
		if profiles, err = text(ctx, c, plan.Namespace, "spec.profiles", plan.Spec.Profiles); err != nil {
			return data{}, err
		}
	}
	prices, err := text(ctx, c, plan.Namespace, "spec.prices", plan.Spec.Prices)
	if err != nil {
		return data{}, err
	}
	own, err := last.catalogue.of(func() (planning.Catalogue, error) { return catalogueOf(plan.Spec.Model, profiles) }, plan.Spec.Model, profiles)
	if err != nil {
		return data{}, err
	}
	var notes []string
	if len(own.Models) == 0 {
		m, why, err := readMeasured(ctx, c, plan)
		if err != nil {
			return data{}, err
		}
		if m == nil {
			return data{}, problemf(api.ReasonInvalidData, "spec.model: there are 0 profiles of %s, want 1, and no GPUProfile of the plan's functions is complete", plan.Spec.Model)
		}
		own, notes = planning.Catalogue{Models: []profile.Model{m.Model}}, why
		model, err := json.Marshal(m.Model)
		if err != nil {
			return data{}, problemf(api.ReasonInvalidData, "%v", err)
		}
		profiles = string(model) // only what the plan depends on, not the rest of the ConfigMap
	}
	d, err := last.joined.of(func() (data, error) { return join(own, prices) }, plan.Spec.Model, profiles, prices)
	if err != nil {
		return data{}, err
	}
	d.notes = append(notes, d.notes...)
	parts := []string{plan.Spec.Model, profiles, prices, fmt.Sprint(plan.Spec.Modes)}
	for _, f := range plan.Spec.Functions {
		if f.RequestsPerSecond > 0 {
			parts = append(parts, f.Name, fmt.Sprint(f.RequestsPerSecond))
		}
	}
	d.hash = hashOf(parts...)
	return d, nil
}

// text returns the data to which a reference points.
func text(ctx context.Context, c client.Reader, namespace, field string, ref api.DataReference) (string, error) {
	m := &v1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.ConfigMap}, m)
	if _, labelled := m.Labels[api.LabelPlanData]; apierrors.IsNotFound(err) || err == nil && !labelled {
		// A ConfigMap without the label is treated as missing, so that a plan reveals nothing of data that is not meant for it.
		return "", problemf(api.ReasonNoData, "%s: there is no ConfigMap %s with the label %s", field, ref.ConfigMap, api.LabelPlanData)
	} else if err != nil {
		return "", err
	}
	if ref.Key == "" {
		if len(m.Data) != 1 {
			return "", problemf(api.ReasonNoData, "%s.key: is not set, and ConfigMap %s has %d keys", field, ref.ConfigMap, len(m.Data))
		}
		return m.Data[slices.Collect(maps.Keys(m.Data))[0]], nil
	}
	value, ok := m.Data[ref.Key]
	if !ok {
		return "", problemf(api.ReasonNoData, "%s.key: ConfigMap %s has no %s", field, ref.ConfigMap, ref.Key)
	}
	return value, nil
}

// catalogueOf returns what profiles contain about a model, which may be nothing. Its errors are *problem.
func catalogueOf(model, profiles string) (planning.Catalogue, error) {
	var all planning.Catalogue
	if err := strictyaml.Unmarshal([]byte(profiles), &all); err != nil {
		return all, problemf(api.ReasonInvalidData, "spec.profiles: %v", err)
	}
	own := planning.Catalogue{
		Models: slices.DeleteFunc(all.Models, func(m profile.Model) bool { return m.Name != model }),
		Chains: slices.DeleteFunc(all.Chains, func(c planning.MeasuredChain) bool { return c.Model != model }),
	}
	if len(own.Models) > 1 {
		return all, problemf(api.ReasonInvalidData, "spec.model: there are %d profiles of %s, want 1", len(own.Models), model)
	}
	return own, nil
}

// join decodes prices and joins the templates of a model to its measured partitions. Its errors are *problem.
func join(own planning.Catalogue, prices string) (data, error) {
	book := planning.NewPriceBook()
	if err := strictyaml.Unmarshal([]byte(prices), &book); err != nil {
		return data{}, problemf(api.ReasonInvalidData, "spec.prices: %v", err)
	}
	if err := wholePercent(own.Models[0].Share, book.Platform); err != nil {
		return data{}, err
	}
	models, joined, err := planning.JoinTemplates(own, book.Prices, book.Platform)
	if err != nil {
		return data{}, problemf(api.ReasonInvalidData, "spec.profiles: %v", err)
	}
	d := data{models: models, prices: book.Prices, terms: book.Platform}
	for _, j := range joined {
		d.notes = append(d.notes, j.String())
	}
	return d, nil
}

// wholePercent returns a problem unless pods can have all shares of a profile: the SMs and quotas of pods are whole percents.
func wholePercent(m *profile.Share, p planning.Platform) error {
	if p.QuotaStep%percent != 0 {
		return problemf(api.ReasonInvalidData, "spec.prices: platform.quotaStep: %d is no whole percent, as the quota of a pod is", p.QuotaStep)
	}
	if m == nil {
		return nil
	}
	for i, c := range m.Curves {
		if c.SM%percent != 0 {
			return problemf(api.ReasonInvalidData, "spec.profiles: share.curves[%d].sm: %d is no whole percent, as the SMs of a pod are", i, c.SM)
		}
	}
	return nil
}

// percent is one percent in the unit of shares.
const percent = share.Whole / 100

func hashOf(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:", len(part))
		_, _ = io.Copy(h, strings.NewReader(part)) // writing to a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
