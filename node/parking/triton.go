package parking

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Triton parks a server through the model repository extension of the Open Inference Protocol, which Triton offers with
// --model-control-mode=explicit: the models are unloaded, and later loaded again from their files. The server itself remembers which models
// it had loaded.
type Triton struct{}

// modelRepository is the name of the extension. Servers may append the names of optional features to it.
const modelRepository = "model_repository"

// maxModels is the maximum number of models of a server.
const maxModels = 64

// States and reason of models in the index of a repository.
const (
	stateReady       = "READY"
	stateUnavailable = "UNAVAILABLE"
	reasonUnloaded   = "unloaded"
)

type tritonModel struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

func (m tritonModel) isParked() bool {
	return m.State == stateUnavailable && m.Reason == reasonUnloaded
}

// Name implements Method.
func (Triton) Name() string { return "Triton" }

// CopiesToHost implements Method: the models are read from their files again.
func (Triton) CopiesToHost() bool { return false }

// Probe implements Method.
func (t Triton) Probe(ctx context.Context, s Server) error {
	var about struct {
		Extensions []string `json:"extensions"`
	}
	err := s.call(ctx, http.MethodGet, "/v2", nil, &about)
	if isForeign(err) {
		return &UnsupportedError{t.Name(), "the server does not speak the Open Inference Protocol"}
	} else if err != nil {
		return err
	}
	if !slices.ContainsFunc(about.Extensions, func(e string) bool { return strings.HasPrefix(e, modelRepository) }) {
		return &UnsupportedError{t.Name(), "the server has no model repository extension"}
	}
	return nil
}

// Park implements Method.
func (t Triton) Park(ctx context.Context, s Server) error {
	models, err := t.index(ctx, s)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(models, func(m tritonModel) bool { return m.State == stateReady || m.isParked() }) {
		return errors.New("no model is loaded")
	}
	for _, name := range namesOf(models, func(m tritonModel) bool { return m.State == stateReady }) {
		if err := t.change(ctx, s, name, "unload"); err != nil {
			return err
		}
	}
	return poll(ctx, func() (bool, error) { // the server answers before the memory is free
		models, err := t.index(ctx, s)
		return err == nil && !slices.ContainsFunc(models, func(m tritonModel) bool { return m.State != "" && m.State != stateUnavailable }), err
	})
}

// Wake implements Method.
func (t Triton) Wake(ctx context.Context, s Server) error {
	models, err := t.index(ctx, s)
	if err != nil {
		return err
	}
	for _, name := range namesOf(models, tritonModel.isParked) {
		if err := t.change(ctx, s, name, "load"); err != nil {
			return err
		}
	}
	models, err = t.index(ctx, s)
	if err == nil && slices.ContainsFunc(models, tritonModel.isParked) {
		err = errors.New("a model is still unloaded")
	}
	return err
}

func (Triton) index(ctx context.Context, s Server) (models []tritonModel, err error) {
	if err = s.call(ctx, http.MethodPost, "/v2/repository/index", struct{}{}, &models); err == nil && len(models) > maxModels {
		err = fmt.Errorf("the repository has %d models, more than %d", len(models), maxModels)
	}
	return models, err
}

func (Triton) change(ctx context.Context, s Server, name, change string) error {
	if err := s.call(ctx, http.MethodPost, "/v2/repository/models/"+url.PathEscape(name)+"/"+change, struct{}{}, nil); err != nil {
		return fmt.Errorf("%s model %.64q: %w", change, name, err)
	}
	return nil
}

// namesOf returns the names of the models that have a version for which holds returns true, each name once.
func namesOf(models []tritonModel, holds func(tritonModel) bool) (names []string) {
	for _, m := range models {
		if holds(m) && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}
