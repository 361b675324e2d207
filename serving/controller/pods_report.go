package controller

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/serving/fleet"
)

// end reports the last event of an instance, of which nothing serves any more, and forgets the instance.
func (p *Pods) end(ctx context.Context, i *podInstance, kind fleet.EventKind, why string) error {
	i.stopAsking()
	p.mu.Lock()
	if p.instances[i.Name] == i {
		delete(p.instances, i.Name)
		delete(p.inTurn, i.Name)
	}
	p.mu.Unlock()
	p.quotas.settle(i.Name)
	p.report(ctx, i, fleet.Event{Kind: kind, Message: why})
	return nil
}

// report sends an event about an instance, unless it is the same as the last one.
func (p *Pods) report(ctx context.Context, i *podInstance, e fleet.Event) {
	e.Instance = i.Name
	if e == i.reported {
		return
	}
	i.reported = e
	p.send(ctx, e)
}

func (p *Pods) send(ctx context.Context, e fleet.Event) {
	select {
	case p.events <- e:
	case <-ctx.Done():
	}
}

// endOf returns why a pod has ended.
func endOf(p *v1.Pod) string {
	text := "its pod has ended: " + string(p.Status.Phase)
	if p.Status.Reason != "" {
		text += ", " + p.Status.Reason
	}
	if p.Status.Message != "" {
		text += ": " + p.Status.Message
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			text += fmt.Sprintf("; container %s exited with code %d (%s)", c.Name, t.ExitCode, t.Reason)
		}
	}
	return text
}

// maxNote is the greatest length in bytes of the text of an event, maxMessage that of a condition. The API server accepts longer conditions.
const (
	maxNote    = 1024
	maxMessage = 4096
)

// shortened returns a text cut to a number of bytes if it is longer. Errors of the API server repeat what users have written, which may have any length.
func shortened(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}
