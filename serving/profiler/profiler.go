// Package profiler measures how a model's server performs on shares of a GPU: it starts the server on the shares that a search strategy asks
// for, sends it requests, and records for each share the highest rate at which requests meet their objective.
//
// It saves the record after each trial, and strategies are functions of the trials so far. A profiler therefore continues the record of one
// that was killed: no trial is lost, and at most the trial that was in progress is repeated.
package profiler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/load"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Target starts the server that is profiled.
type Target interface {
	// Start starts the server on the given SMs and quota, with nothing else on the device, and waits until it is ready. The error is a
	// *FailedError if the server does not run there.
	Start(ctx context.Context, sm, quota share.PerMille) (Server, error)
}

// Server is a running server.
type Server interface {
	// Infer sends one request with the given number of rows and returns its result. It is called concurrently.
	Infer(ctx context.Context, rows int) load.Answer
	// Usage returns what the server has used of the device. An error means that the figures cannot be trusted, for example because
	// another program is on the device.
	Usage(ctx context.Context) (Usage, error)
	// Narrow changes the quota of the running server, to at most the one with which it was started. It returns false if the server keeps
	// its present quota.
	Narrow(ctx context.Context, quota share.PerMille) bool
	// Ended returns a channel that is closed when the server has ended, by itself or after Close.
	Ended() <-chan struct{}
	// Failure returns how the server has ended, once it has; it is empty if that is not known.
	Failure() string
	// Close ends the server and waits until all of it is gone.
	Close()
}

// Usage is what a server has used of its device.
type Usage struct {
	Memory      share.Bytes
	Utilisation share.PerMille // fraction of the last second in which one of its kernels ran
	Launches    uint64         // number of kernels launched by its living processes; 0 if nobody counts them
	Counted     bool           // somebody counts them
}

// FailedError says that a server does not run in a setting. This is a result: the setting is then not an option.
type FailedError struct{ Reason string }

func (e *FailedError) Error() string { return e.Reason }

// ErrNoKernels is the error of Run for a server that answers requests and yet launches no kernel. Its rate says nothing about shares of a GPU.
var ErrNoKernels = errors.New("the server launched no kernel while it answered requests: is it on the CPU, or does it answer without the model?")

// Config is what a Profiler needs.
type Config struct {
	Strategy search.Strategy
	Target   Target
	Load     Load
	Progress *Progress // used instead of Load for a program that answers no requests

	// MaxTrials limits the trials of the record and MaxTime the time of Run; 0 means no limit. No trial begins beyond them.
	MaxTrials int
	MaxTime   time.Duration

	// Save saves the record so that a later profiler can continue it. It is called before and after each trial.
	Save func(*Record) error
	// Begin is called before a trial and Report after it, unless they are nil. again means that the best trial is being measured again.
	Begin  func(s search.Setting, again bool)
	Report func(Trial)
}

// ErrBudget is the error of Run if MaxTrials or MaxTime ended it before the strategy. The record is valid and can be continued.
var ErrBudget = errors.New("the budget is used up")

// Run measures what the strategy asks for beyond the trials in the record, and adds each trial to the record. Then it measures the best one
// again, for longer, and repeats this until the best trial is one that was measured again. It returns nil when that is done, ErrBudget, or the
// error that prevents it from going on, such as that of ctx. In all these cases another Run may continue the record.
func Run(ctx context.Context, c Config, r *Record) error {
	p := &profiler{Config: c, record: r, begin: time.Now()}
	defer p.closeServer()
	for {
		task, err := r.Next(c.Strategy)
		if err != nil {
			return err
		}
		if task == nil {
			r.Complete, r.Attempt = true, nil
			return c.Save(r)
		}
		if c.MaxTrials > 0 && len(r.Trials) >= c.MaxTrials && !task.Confirm || c.MaxTime > 0 && time.Since(p.begin) >= c.MaxTime {
			return ErrBudget
		}
		if err := p.try(ctx, task.Setting, r.confirmed(task)); err != nil {
			return err
		}
	}
}

// profiler is one call of Run.
type profiler struct {
	Config
	record *Record
	begin  time.Time

	server Server           // the running one, or nil
	own    profile.Resource // resource with which it was started
	on     profile.Resource // resource that it has now
	since  time.Time        // when the device began to be used for the trial
}

// maxAttempts is how many times a trial is begun if the profiler or the server ends during it.
const maxAttempts = 2

// try measures a setting and adds the trial to the record; if old is not nil, it measures that trial of the record again and replaces it. It saves the attempt
// first, so that a setting that kills the profiler is not tried forever.
func (p *profiler) try(ctx context.Context, s search.Setting, old *Trial) error {
	if p.Begin != nil {
		p.Begin(s, old != nil)
	}
	attempt := p.record.Attempt
	if attempt == nil || attempt.Resource != s.Resource || attempt.Batch != s.Batch {
		attempt = &Attempt{Resource: s.Resource, Batch: s.Batch}
	}
	if attempt.Count >= maxAttempts {
		return p.add(old, p.failed(s, fmt.Sprintf("the profiler has ended %d times during this trial", attempt.Count)))
	}
	attempt.Count++
	p.record.Attempt, p.record.Complete = attempt, false
	if err := p.Save(p.record); err != nil {
		return err
	}
	p.since = time.Now()
	trial, err := p.measureTwice(ctx, s, old)
	if err == nil {
		trial.GPUSeconds += time.Since(p.since).Seconds()
		return p.add(old, trial)
	}
	p.record.Attempt = nil // an orderly end is not a crash
	p.record.GPUSeconds += time.Since(p.since).Seconds()
	return errors.Join(err, p.Save(p.record))
}

// add adds a trial to the record, or replaces an old one.
func (p *profiler) add(old *Trial, t Trial) error {
	p.record.GPUSeconds += t.GPUSeconds
	if old != nil {
		p.record.GPUSeconds -= old.GPUSeconds
		*old = t
	} else {
		p.record.Trials = append(p.record.Trials, t)
	}
	p.record.Attempt = nil
	if err := p.Save(p.record); err != nil {
		return err
	}
	if p.Report != nil {
		p.Report(t)
	}
	return nil
}

// measureTwice measures a setting, and does so once more if the server fails the first time.
func (p *profiler) measureTwice(ctx context.Context, s search.Setting, old *Trial) (Trial, error) {
	var failed *FailedError
	for range maxAttempts {
		trial, err := p.measure(ctx, s, old)
		if err == nil || !errors.As(err, &failed) {
			return trial, err
		}
		p.closeServer()
	}
	return p.failed(s, failed.Reason), nil
}

func (p *profiler) failed(s search.Setting, reason string) Trial {
	return Trial{Point: profile.Point{Model: p.record.Model, Resource: s.Resource, Batch: s.Batch}, Failed: reason}
}

// measure measures a setting on a server that runs with it.
func (p *profiler) measure(ctx context.Context, s search.Setting, old *Trial) (trial Trial, err error) {
	if err := p.serve(ctx, s.Resource); err != nil {
		return Trial{}, err
	}
	measuring, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := p.server.Ended()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-measuring.Done():
		}
	}()
	switch {
	case p.Progress != nil:
		trial, err = p.Progress.Measure(measuring, p.server)
	case old != nil:
		trial = *old
		trial.Steps = slices.Clone(old.Steps)
		err = p.Load.Confirm(measuring, p.server, &trial)
	default:
		trial, err = p.Load.Measure(measuring, p.server, s.Batch)
	}
	switch {
	case ctx.Err() != nil:
		return Trial{}, ctx.Err()
	case measuring.Err() != nil:
		return Trial{}, p.endedError()
	case err != nil:
		return Trial{}, err
	}
	trial.Point.Model, trial.Point.Resource, trial.Point.Batch = p.record.Model, s.Resource, s.Batch
	return trial, nil
}

// endedError says that the server has ended during a trial.
func (p *profiler) endedError() error {
	reason := "the server ended during the trial"
	if p.Progress != nil {
		reason = fmt.Sprintf("the program ended before %v of steady kernels", p.Progress.Length)
	}
	if how := p.server.Failure(); how != "" {
		reason += ": " + how
	}
	return &FailedError{reason}
}

// serve makes a server run on the given share. It keeps a running server for other batch sizes and for smaller quotas.
func (p *profiler) serve(ctx context.Context, on profile.Resource) error {
	if p.server != nil {
		sameSMs := p.own
		sameSMs.Quota = on.Quota
		if p.on == on || sameSMs == on && on.Quota <= p.own.Quota && p.server.Narrow(ctx, on.Quota) {
			p.on = on
			return nil
		}
		p.closeServer()
	}
	server, err := p.Target.Start(ctx, on.SM, on.Quota)
	if err != nil {
		return err
	}
	p.server, p.own, p.on = server, on, on
	return nil
}

func (p *profiler) closeServer() {
	if p.server != nil {
		p.server.Close()
		p.server = nil
	}
}
