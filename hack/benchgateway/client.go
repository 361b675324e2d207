package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// plainRequest returns a request with a body of 1 KiB for the function "plain".
func plainRequest(proxy string) []byte {
	host := "plain"
	if proxy == throughKnative {
		host = "plain.default.svc.cluster.local" // the host name of the revision
	}
	return request(host, "/v1/predict", "application/octet-stream", 0, make([]byte, 1024))
}

// inferRequest returns a request of the Open Inference Protocol for the function "batched", with 1 KiB in a binary tensor.
func inferRequest() []byte {
	head := `{"id":"1","inputs":[{"name":"x","shape":[1,256],"datatype":"FP32","parameters":{"binary_data_size":1024}}]}`
	return request("batched", "/v2/models/batched/infer", "application/octet-stream", len(head), append([]byte(head), make([]byte, 1024)...))
}

// numbersRequest returns an inference request with 256 numbers in JSON. It is one of the Open Inference Protocol, except for KServe's batcher,
// which only knows the first version of KServe's protocol.
func numbersRequest(proxy string) []byte {
	var numbers []string
	for i := range 256 {
		numbers = append(numbers, strconv.FormatFloat(float64(i*i)/4096+0.123, 'f', 6, 64))
	}
	list := strings.Join(numbers, ",")
	if proxy == throughKServe {
		return request("batched", "/v1/models/batched:predict", "application/json", 0, []byte(`{"instances":[[`+list+`]]}`))
	}
	return request("batched", "/v2/models/batched/infer", "application/json", 0,
		[]byte(`{"id":"1","inputs":[{"name":"x","shape":[1,256],"datatype":"FP32","data":[`+list+`]}]}`))
}

func request(host, path, contentType string, jsonLength int, body []byte) []byte {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n", path, host, contentType, len(body))
	if jsonLength > 0 {
		head += "Inference-Header-Content-Length: " + strconv.Itoa(jsonLength) + "\r\n"
	}
	return append([]byte(head+"\r\n"), body...)
}

// saturate sends requests over all connections, each as soon as the previous one on its connection is answered.
func (o *options) saturate(ctx context.Context, proxy string, request []byte) (figure, error) {
	return o.measure(ctx, proxy, request, 0)
}

// paced sends requests at a rate, evenly over the connections.
func (o *options) paced(ctx context.Context, proxy string, request []byte, rate float64) (figure, error) {
	return o.measure(ctx, proxy, request, time.Duration(float64(o.connections)/rate*float64(time.Second)))
}

// measure runs a server and a proxy, sends requests to the proxy, and returns what they cost, after a warm-up.
func (o *options) measure(ctx context.Context, proxy string, request []byte, every time.Duration) (figure, error) {
	p, err := o.startProxy(ctx, proxy)
	if err != nil {
		return figure{}, err
	}
	defer p.stop()
	if _, err := o.clients(p.address, request, every, o.time/4); err != nil {
		return figure{}, err
	}
	before, start := p.processor(), time.Now()
	latencies, err := o.clients(p.address, request, every, o.time)
	if err != nil {
		return figure{}, err
	}
	cost, took := p.processor()-before, time.Since(start)
	n := latencies.TotalCount()
	if n == 0 {
		return figure{}, errors.New("no request was answered")
	}
	return figure{
		cost / time.Duration(n), float64(n) / took.Seconds(),
		time.Duration(latencies.ValueAtQuantile(50)), time.Duration(latencies.ValueAtQuantile(99)),
	}, nil
}

// clients sends requests for a time and returns their latencies in nanoseconds, measured from when each was due.
func (o *options) clients(address string, request []byte, every, last time.Duration) (*hdrhistogram.Histogram, error) {
	all := hdrhistogram.New(1, int64(time.Minute), 3)
	var mu sync.Mutex
	var failed error
	var wait sync.WaitGroup
	begin := time.Now()
	for i := range o.connections {
		wait.Go(func() {
			own := hdrhistogram.New(1, int64(time.Minute), 3)
			err := client(address, request, begin.Add(every*time.Duration(i)/time.Duration(o.connections)), begin.Add(last), every, own)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			all.Merge(own)
		})
	}
	wait.Wait()
	return all, failed
}

// client sends requests over one connection until end, one every interval or, if every is 0, as soon as the previous one is answered.
func client(address string, request []byte, next, end time.Time, every time.Duration, latencies *hdrhistogram.Histogram) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	reader := bufio.NewReader(c)
	for time.Now().Before(end) {
		if every > 0 {
			time.Sleep(time.Until(next))
		} else {
			next = time.Now()
		}
		if _, err := c.Write(request); err != nil {
			return err
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		if err := latencies.RecordValue(int64(max(1, time.Since(next)))); err != nil {
			return err
		}
		next = next.Add(every)
	}
	return nil
}
