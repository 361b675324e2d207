// Package measure reads the use of shares from the metrics of a cluster's node agents. Agents serve metrics on the loopback address of
// their nodes, so the package uses port-forwarding through the API server, as kubectl port-forward does.
package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/doctor"
)

// Get sends an HTTP GET to a port of a pod through the API server and returns the body. The user needs permission to create
// pods/portforward.
func Get(ctx context.Context, c *cluster.Connection, pod *v1.Pod, port int, path string) ([]byte, error) {
	dialer, err := dialerTo(c, pod)
	if err != nil {
		return nil, err
	}
	connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("port-forward to %s: %w", pod.Name, err)
	}
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	defer connection.Close()
	data, fault, err := openStreams(connection, port)
	if err != nil {
		return nil, fmt.Errorf("port-forward to %s: %w", pod.Name, err)
	}
	text, err := sendGet(ctx, data, path)
	if err != nil {
		err = errors.Join(err, fault()) // the reason for a missing response
	}
	return text, err
}

// dialerTo returns a dialer for a pod's portforward subresource. It prefers WebSockets and falls back to SPDY if the API server or a proxy
// does not support them.
func dialerTo(c *cluster.Connection, pod *v1.Pod) (httpstream.Dialer, error) {
	url := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return nil, err
	}
	fallback := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, c.Config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(websocket, fallback, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// openStreams creates the data and error streams of a forwarded connection. fault blocks until the other end has closed the error stream, and
// returns what was written to it.
func openStreams(connection httpstream.Connection, port int) (data httpstream.Stream, fault func() error, err error) {
	headers := http.Header{}
	headers.Set(v1.PortHeader, strconv.Itoa(port))
	headers.Set(v1.PortForwardRequestIDHeader, "0")
	headers.Set(v1.StreamType, v1.StreamTypeError)
	failures, err := connection.CreateStream(headers)
	if err != nil {
		return nil, nil, err
	}
	failures.Close() // for writing
	headers.Set(v1.StreamType, v1.StreamTypeData)
	data, err = connection.CreateStream(headers)
	return data, func() error {
		text, err := io.ReadAll(failures)
		if len(text) > 0 {
			err = errors.New(string(text))
		}
		return err
	}, err
}

// maxResponse is the largest accepted response body, in bytes.
const maxResponse = 16 << 20

// sendGet sends an HTTP GET over a forwarded stream and returns the response body.
func sendGet(ctx context.Context, stream io.ReadWriter, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	r.Close = true
	if err := r.Write(stream); err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(stream), r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxResponse))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return text, err
}

// Agents holds the pods of a cluster's running node agents.
type Agents struct {
	connection *cluster.Connection
	pods       []v1.Pod
}

// FindAgents returns the running node agents: that of one node, or all if node is empty. It returns an error if none is running.
func FindAgents(ctx context.Context, c *cluster.Connection, node string) (*Agents, error) {
	list, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: doctor.AgentPods})
	if err != nil {
		return nil, fmt.Errorf("list node agents: %w", err)
	}
	a := &Agents{connection: c}
	for _, pod := range list.Items {
		if pod.Status.Phase == v1.PodRunning && (node == "" || pod.Spec.NodeName == node) {
			a.pods = append(a.pods, pod)
		}
	}
	if len(a.pods) == 0 {
		return nil, fmt.Errorf("no running node agent in %s (see gshare doctor)", cluster.Namespace)
	}
	return a, nil
}

// Sample holds the metrics of all node agents at one time.
type Sample struct {
	At     time.Time
	Shares []Share
	Errors []string // one for each agent whose metrics could not be read, with the name of its node
}

// maxConcurrent is the largest number of agents that are queried at the same time.
const maxConcurrent = 16

// Read reads the current metrics of every agent.
func (a *Agents) Read(ctx context.Context) Sample {
	var mu sync.Mutex // guards sample
	sample := Sample{At: time.Now()}
	var group sync.WaitGroup
	semaphore := make(chan struct{}, maxConcurrent)
	for i := range a.pods {
		semaphore <- struct{}{}
		group.Go(func() {
			defer func() { <-semaphore }()
			shares, err := a.readAgent(ctx, &a.pods[i])
			mu.Lock()
			defer mu.Unlock()
			sample.Shares = append(sample.Shares, shares...)
			if err != nil {
				sample.Errors = append(sample.Errors, a.pods[i].Spec.NodeName+": "+err.Error())
			}
		})
	}
	group.Wait()
	slices.SortFunc(sample.Shares, func(x, y Share) int { return strings.Compare(x.key(), y.key()) })
	slices.Sort(sample.Errors)
	return sample
}

// readAgent reads the metrics of one agent.
func (a *Agents) readAgent(ctx context.Context, pod *v1.Pod) ([]Share, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := Get(ctx, a.connection, pod, metricsPort(pod), "/metrics")
	if err != nil {
		return nil, err
	}
	return Parse(pod.Spec.NodeName, text)
}

// metricsPort returns the port of an agent's readiness probe, on which the agent also serves its metrics.
func metricsPort(pod *v1.Pod) int {
	const defaultPort = 9477
	for _, c := range pod.Spec.Containers {
		if p := c.ReadinessProbe; p != nil && p.HTTPGet != nil && p.HTTPGet.Port.IntValue() > 0 {
			return p.HTTPGet.Port.IntValue()
		}
	}
	return defaultPort
}
