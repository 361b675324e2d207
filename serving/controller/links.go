package controller

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	discovery "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Times of the links to gateways.
const (
	lookPeriod = 500 * time.Millisecond // between two looks at the endpoints, which are in the cache
	redialMin  = 100 * time.Millisecond
	redialMax  = 2 * time.Second
)

// links keeps a connection to each gateway and records what they report.
type links struct {
	client  client.Client
	service client.ObjectKey // the Service whose endpoints are the gateways' ports for reports
	loads   *loads
	log     *slog.Logger
	// watch receives the reports of a gateway, given by name and address, until the connection ends.
	watch func(ctx context.Context, name, address string) error
}

// endpoint is a gateway's port for reports.
type endpoint struct{ name, address string }

// Run keeps the connections until ctx ends.
func (l *links) Run(ctx context.Context) {
	open := map[endpoint]*link{}
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	for {
		if found, err := l.endpoints(ctx); err != nil {
			l.log.Warn("failed to list gateways", "service", l.service.String(), "error", err)
		} else {
			var names []string
			for _, e := range found {
				names = append(names, e.name)
			}
			l.loads.expect(names)
			l.adjust(ctx, open, found)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// link is a connection that is kept open.
type link struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// adjust opens and closes connections so that there is one to each endpoint. If a gateway has got another address, its old connection is ended first:
// otherwise its end would remove what the gateway has reported over the new one.
func (l *links) adjust(ctx context.Context, open map[endpoint]*link, found []endpoint) {
	for e, old := range open {
		if !slices.Contains(found, e) {
			old.stop()
			<-old.ended
			delete(open, e)
			l.log.Info("gateway is gone", "gateway", e.name, "address", e.address)
		}
	}
	for _, e := range found {
		if open[e] != nil {
			continue
		}
		linked, stop := context.WithCancel(ctx)
		now := &link{stop, make(chan struct{})}
		open[e] = now
		go func() {
			defer close(now.ended)
			l.keep(linked, e)
		}()
	}
}

// keep connects to a gateway again and again until ctx ends.
func (l *links) keep(ctx context.Context, e endpoint) {
	defer l.loads.remove(e.name)
	for pause := redialMin; ctx.Err() == nil; pause = min(2*pause, redialMax) {
		began := time.Now()
		err := l.watch(ctx, e.name, e.address)
		l.loads.disconnect(e.name)
		if ctx.Err() != nil {
			return
		}
		l.log.Warn("lost connection to gateway", "gateway", e.name, "address", e.address, "error", err)
		if time.Since(began) > redialMax {
			pause = redialMin
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// endpoints returns the gateways that run, ready or not: a gateway that is ending still has requests.
func (l *links) endpoints(ctx context.Context) ([]endpoint, error) {
	list := &discovery.EndpointSliceList{}
	if err := l.client.List(ctx, list, client.InNamespace(l.service.Namespace), client.MatchingLabels{discovery.LabelServiceName: l.service.Name}); err != nil {
		return nil, err
	}
	var found []endpoint
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			for _, p := range s.Ports {
				if e.TargetRef == nil || p.Port == nil || len(e.Addresses) == 0 {
					continue
				}
				found = append(found, endpoint{e.TargetRef.Name, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port)))})
			}
		}
	}
	return found, nil
}
