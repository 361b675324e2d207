package standalone

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver/metrics"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// NewHTTPServer returns the server of the control socket, which gshare run connects to. Callers are identified by the credentials of their
// connection only.
func (n *Node) NewHTTPServer() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+control.RunsPath, n.postRun)
	mux.HandleFunc("POST "+control.LimitPath, n.postLimit)
	mux.HandleFunc("POST "+control.StopPath, n.postStop)
	mux.HandleFunc("GET "+control.StatusPath, n.getStatus)
	callers := newCallers(n.Log)
	return &http.Server{
		Handler: callers.pace(mux), MaxHeaderBytes: control.MaxRequest, ConnContext: callers.connected, ConnState: callers.changed,
		ReadTimeout: n.timing.request, IdleTimeout: n.timing.request, WriteTimeout: 5 * n.timing.request,
	}
}

func (n *Node) postRun(w http.ResponseWriter, r *http.Request) {
	request, err := control.DecodeRunRequest(http.MaxBytesReader(w, r.Body, control.MaxRequest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, err := process.Peer(connOf(r.Context()))
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	connection := http.NewResponseController(w)
	_ = connection.SetWriteDeadline(time.Time{}) // the request may wait for days; cannot fail for a socket
	say := func(e control.Event) {
		_ = json.NewEncoder(w).Encode(e) // if the caller is gone, the context ends, too
		_ = connection.Flush()
	}
	grant, refusal := n.granter.admit(r.Context(), p, request, func(why *control.Refusal) { say(control.Event{Waiting: why}) })
	if grant == nil {
		p.Close()
	}
	say(control.Event{Grant: grant, Refused: refusal})
}

func (n *Node) postLimit(w http.ResponseWriter, r *http.Request) {
	request, err := control.DecodeLimitRequest(http.MaxBytesReader(w, r.Body, control.MaxRequest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, err := process.Peer(connOf(r.Context()))
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	p.Close()
	_ = json.NewEncoder(w).Encode(control.Event{Refused: n.granter.setLimit(p.UID, request)}) // as above
}

func (n *Node) postStop(w http.ResponseWriter, r *http.Request) {
	request, err := control.DecodeStopRequest(http.MaxBytesReader(w, r.Body, control.MaxRequest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	uid, err := process.PeerUser(connOf(r.Context()))
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})                                  // the grace period may be long; cannot fail for a socket
	_ = json.NewEncoder(w).Encode(control.Event{Refused: n.granter.stop(r.Context(), uid, request)}) // as above
}

func (n *Node) getStatus(w http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(w).Encode(n.Status()) // as above
}

// NewDebugServer returns a server of /metrics: the metrics of the token server, of the Go runtime, of the agent's process, and of the
// options.
func (n *Node) NewDebugServer() *http.Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(n.server.slices.Tokens), n.unhooked, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(n.Metrics...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return &http.Server{Handler: mux, ReadTimeout: n.timing.request, IdleTimeout: time.Minute}
}

// Status returns the devices and runs of the machine, as gshare ps shows them.
func (n *Node) Status() control.Status {
	runs := n.runs.snapshot()
	status := control.Status{Devices: []control.Device{}, Runs: []control.Run{}}
	loaded := n.devices.loaded(runs)
	for i := range loaded.Slices {
		s, load := &loaded.Slices[i], &loaded.Loads[i]
		d := control.Device{
			UUID: string(s.ID), Profile: s.Profile, Model: s.Model, SMs: s.SMs, Memory: s.Memory, Promised: load.Memory(),
			Time: share.PerMille(load.Requested() / share.Area(share.Whole)), Simulated: n.MPS.Simulated,
		}
		if !load.Empty() {
			d.Class = string(load.Residents()[0].Class)
		}
		status.Devices = append(status.Devices, d)
	}
	for _, r := range runs {
		status.Runs = append(status.Runs, n.enforcement.addObserved(r, runs))
	}
	return status
}
