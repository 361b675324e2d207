// Package measure reads what the shares of a cluster really get, from the metrics of its node agents. Agents listen on their
// node's own address only, so the way there is the API server's port-forward, as kubectl's.
package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
)

// Get reads a path that a pod serves on a port of its own. It takes the right to create pods/portforward.
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
	data, fault, err := open(connection, port)
	if err != nil {
		return nil, fmt.Errorf("port-forward to %s: %w", pod.Name, err)
	}
	text, err := request(ctx, data, path)
	if err != nil {
		err = errors.Join(err, fault()) // says why there was no answer
	}
	return text, err
}

// dialerTo prefers WebSockets, and falls back to SPDY where the API server or a proxy before it does not take them.
func dialerTo(c *cluster.Connection, pod *v1.Pod) (httpstream.Dialer, error) {
	url := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, c.Config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(websocket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// open makes the two streams of a forwarded connection. fault waits for what the other end says of an error.
func open(connection httpstream.Connection, port int) (data httpstream.Stream, fault func() error, err error) {
	headers := http.Header{}
	headers.Set(v1.PortHeader, strconv.Itoa(port))
	headers.Set(v1.PortForwardRequestIDHeader, "0")
	headers.Set(v1.StreamType, v1.StreamTypeError)
	failures, err := connection.CreateStream(headers)
	if err != nil {
		return nil, nil, err
	}
	failures.Close() // nothing is written here
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

// maxAnswer bounds what an agent may answer.
const maxAnswer = 16 << 20

func request(ctx context.Context, stream io.ReadWriter, path string) ([]byte, error) {
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
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return text, err
}
