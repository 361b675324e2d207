package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// refusing is a RoundTripper for requests that must not reach it.
type refusing struct{}

func (refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("%s %s went to the other transport", r.Method, r.URL)
}

func newTransport(t *testing.T) *Transport {
	transport := &Transport{Others: refusing{}}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// serveRaw runs answer on each connection to the returned address, and counts the connections.
func serveRaw(t *testing.T, answer func(connection net.Conn, reader *bufio.Reader)) (url string, connections *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	connections = new(atomic.Int64)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go func() {
				defer c.Close()
				answer(c, bufio.NewReader(c))
			}()
		}
	}()
	return "http://" + listener.Addr().String(), connections
}

// readRequest reads a complete request. It returns false at the end of the connection.
func readRequest(reader *bufio.Reader) bool {
	r, err := http.ReadRequest(reader)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err == nil
}

// TestServer sends requests over one connection to a net/http server, which receives them as it does from http.Transport.
func TestServer(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var header []string
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			header = append(header, fmt.Sprintf("%s=%q", name, r.Header[name]))
		}
		got = append(got, fmt.Sprintf("%s %s host %s length %d %s body %.40q %v", r.Method, r.RequestURI, r.Host, r.ContentLength, header, body, err))
		w.Header().Set("X-Method", r.Method)
		if r.URL.Path == "/none" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		fmt.Fprintf(w, "%d bytes", len(body))
	}))
	defer server.Close()
	standard := &http.Transport{DisableCompression: true}
	defer standard.CloseIdleConnections()
	ours := newTransport(t)
	dial, dials := NewDialer(maxUnacknowledged).DialContext, 0
	ours.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials++
		return dial(ctx, network, address)
	}
	requests := []func() *http.Request{
		func() *http.Request { return request(t, "GET", server.URL+"/a?b=c%20d", "") },
		func() *http.Request { return request(t, "HEAD", server.URL+"/head", "") },
		func() *http.Request { return request(t, "DELETE", server.URL+"/none", "") },
		func() *http.Request {
			return request(t, "POST", server.URL+"/v2/models/m/infer", strings.Repeat("x", maxBody))
		},
		func() *http.Request {
			r := request(t, "PUT", server.URL, "abc")
			r.Host = "resnet.default"
			r.Header = http.Header{"X-Two": {"1", "2"}, "User-Agent": {"someone"}, "X-Line": {"a\r\nX-Injected: b"}, "Bad name": {"c"}}
			return r
		},
	}
	for _, make := range requests {
		for _, transport := range []http.RoundTripper{standard, ours} {
			r := make()
			if transport == http.RoundTripper(standard) { // which refuses what http.Request.Write makes harmless
				r.Header.Del("Bad name")
				if r.Header.Get("X-Line") != "" {
					r.Header.Set("X-Line", "a  X-Injected: b")
				}
			}
			response, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			got = append(got, fmt.Sprintf("%s %v %d %q %v", response.Status, response.Header["X-Method"], response.ContentLength, body, err))
			response.Body.Close()
		}
		if n := len(got); got[n-4] != got[n-2] || got[n-3] != got[n-1] {
			t.Errorf("http.Transport\n  %s\n  %s\nTransport\n  %s\n  %s", got[n-4], got[n-3], got[n-2], got[n-1])
		}
	}
	if dials != 1 {
		t.Errorf("%d connections, want one", dials)
	}
}

// TestAnswers compares how responses, valid or not, are handled with how http.Transport handles them.
func TestAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"length":                 "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"empty":                  "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"chunked":                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\n, h\r\n0\r\n\r\n",
		"trailer":                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n5\r\nhello\r\n0\r\nX-End: yes\r\n\r\n",
		"until the end":          "HTTP/1.1 200 OK\r\n\r\nhello",
		"closes":                 "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.0":               "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"continue":               "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok",
		"not modified":           "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
		"server error":           "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy",
		"status 99":              "HTTP/1.1 099 What\r\nContent-Length: 0\r\n\r\n",
		"too short":              "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
		"broken chunk":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello",
		"chunks end early":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
		"no HTTP":                "220 mail.example.com ESMTP\r\n",
		"header ends early":      "HTTP/1.1 200 OK\r\nContent-Le",
		"nothing":                "",
		"two lengths":            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"length and chunks":      "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"more than was asked":    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"negative length":        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
		"switches the protocols": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := serveRaw(t, func(c net.Conn, reader *bufio.Reader) {
				if readRequest(reader) {
					_, _ = io.WriteString(c, answer)
				}
			})
			standard := &http.Transport{DisableCompression: true}
			defer standard.CloseIdleConnections()
			ends := func(transport http.RoundTripper) string {
				response, err := transport.RoundTrip(request(t, "POST", url, "hello"))
				if err != nil {
					return "error"
				}
				defer response.Body.Close()
				if response.StatusCode == http.StatusSwitchingProtocols { // useless for a client that did not ask for it
					return "error"
				}
				body, err := io.ReadAll(response.Body)
				return fmt.Sprintf("%s %d %v %q %v trailer %v", response.Status, response.ContentLength, response.Header, body, err != nil, response.Trailer)
			}
			if want, got := ends(standard), ends(newTransport(t)); got != want {
				t.Errorf("%s, want as http.Transport %s", got, want)
			}
		})
	}
}

// TestPoisoned sends two requests to a server that answers the first one twice. The second response must not be taken as that of the second
// request, whether it arrives together with the first or some time later.
func TestPoisoned(t *testing.T) {
	for name, pause := range map[string]time.Duration{"at once": 0, "later": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			sent := make(chan bool, 2)
			url, connections := serveRaw(t, func(c net.Conn, reader *bufio.Reader) {
				for readRequest(reader) {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
					time.Sleep(pause)
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
					sent <- true
				}
			})
			transport := newTransport(t)
			for range 2 {
				response, err := transport.RoundTrip(request(t, "POST", url, "hello"))
				if err != nil {
					t.Fatal(err)
				}
				if body, err := io.ReadAll(response.Body); string(body) != "good" || err != nil {
					t.Errorf("%q, %v", body, err)
				}
				<-sent
			}
			if n := connections.Load(); n != 2 {
				t.Errorf("%d connections, want 2", n)
			}
		})
	}
}

// TestClosedWhileIdle sends requests to a server that closes each connection after its first response, without announcing it.
func TestClosedWhileIdle(t *testing.T) {
	closed := make(chan bool, 1)
	url, connections := serveRaw(t, func(c net.Conn, reader *bufio.Reader) {
		if readRequest(reader) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			c.Close()
			closed <- true
		}
	})
	transport := newTransport(t)
	for i := range 3 {
		response, err := transport.RoundTrip(request(t, "POST", url, "hello"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		<-closed
		if n := connections.Load(); n != int64(i)+1 {
			t.Errorf("%d connections after request %d", n, i+1)
		}
	}
}

// TestClosedMeanwhile sends a second request on a connection that the server closes when it reads that request. Only requests that may be repeated
// are sent again.
func TestClosedMeanwhile(t *testing.T) {
	for method, repeated := range map[string]bool{"GET": true, "POST": false} {
		t.Run(method, func(t *testing.T) {
			url, connections := serveRaw(t, func(c net.Conn, reader *bufio.Reader) {
				if readRequest(reader) {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					readRequest(reader)
				}
			})
			transport := newTransport(t)
			if _, err := transport.RoundTrip(request(t, method, url, "")); err != nil {
				t.Fatal(err)
			}
			_, err := transport.RoundTrip(request(t, method, url, ""))
			if repeated != (err == nil) || !repeated && !errors.Is(err, errUnanswered) {
				t.Errorf("the second request: %v", err)
			}
			if n := connections.Load(); n != map[bool]int64{true: 2, false: 1}[repeated] {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// closing is a connection whose second write comes when the server has closed its side, which no look at the connection before has shown.
type closing struct {
	*net.TCPConn
	writes int
	close  func()
}

func (c *closing) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 2 {
		c.close()
		time.Sleep(20 * time.Millisecond) // until the end of the connection has come
	}
	return c.TCPConn.Write(b)
}

// TestClosedBefore sends a POST on a connection that the server has closed meanwhile, so that it never gets it there: the request is sent on another one.
// TestClosedMeanwhile has the request that the server gets.
func TestClosedBefore(t *testing.T) {
	end := make(chan bool, 1)
	closed := make(chan bool)
	var served atomic.Int64
	url, connections := serveRaw(t, func(c net.Conn, reader *bufio.Reader) {
		for readRequest(reader) {
			n := served.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			if n == 1 {
				<-end
				c.Close()
				closed <- true
				return
			}
		}
	})
	transport := newTransport(t)
	transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &closing{TCPConn: c.(*net.TCPConn), close: func() { end <- true; <-closed }}, nil
	}
	for range 2 {
		response, err := transport.RoundTrip(request(t, "POST", url, "hello"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	if served.Load() != 2 || connections.Load() != 2 {
		t.Errorf("%d requests served on %d connections, want 2 on 2", served.Load(), connections.Load())
	}
}

// TestUnacknowledged checks that the kernel gives up a connection whose server acknowledges nothing.
func TestUnacknowledged(t *testing.T) {
	url, _ := serveRaw(t, func(_ net.Conn, reader *bufio.Reader) { readRequest(reader) })
	transport := newTransport(t)
	c, err := transport.connect(t.Context(), strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.abort()
	if err := c.raw.Control(func(fd uintptr) {
		got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		if want := int(maxUnacknowledged.Milliseconds()); err != nil || got != want {
			t.Errorf("the kernel waits %d ms, error %v; want %d ms", got, err, want)
		}
	}); err != nil {
		t.Error(err)
	}
}

// TestNeverAnswered sends a request to a server that closes every connection, and checks that it is not retried endlessly.
func TestNeverAnswered(t *testing.T) {
	url, connections := serveRaw(t, func(_ net.Conn, reader *bufio.Reader) { readRequest(reader) })
	if _, err := newTransport(t).RoundTrip(request(t, "GET", url, "")); !errors.Is(err, errUnanswered) {
		t.Error(err)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestHeaderTooLong(t *testing.T) {
	for name, part := range map[string]string{
		"fields":               "X-Field: " + strings.Repeat("x", 1000) + "\r\n",
		"informational answer": "\r\nHTTP/1.1 103 Early Hints\r\n",
		"one field":            strings.Repeat("x", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan int, 1)
			url, _ := serveRaw(t, func(c net.Conn, reader *bufio.Reader) {
				readRequest(reader)
				sent, _ := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n")
				for {
					n, err := io.WriteString(c, part)
					sent += n
					if err != nil || sent > 100*maxHeader {
						ended <- sent
						return
					}
				}
			})
			if _, err := newTransport(t).RoundTrip(request(t, "POST", url, "")); !errors.Is(err, errHeaderTooLong) {
				t.Error(err)
			}
			if sent := <-ended; sent > 50*maxHeader { // plus what the kernel buffers
				t.Errorf("%d bytes were taken", sent)
			}
		})
	}
}

// TestCanceled cancels the context while a server is silent before its response, and in the middle of it.
func TestCanceled(t *testing.T) {
	why := errors.New("the deadline has passed")
	for name, begun := range map[string]string{"before the answer": "", "in its header": "HTTP/1.1 200 OK\r\nX", "in its body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"} {
		t.Run(name, func(t *testing.T) {
			silent, gone := make(chan bool), make(chan bool)
			url, _ := serveRaw(t, func(c net.Conn, reader *bufio.Reader) {
				readRequest(reader)
				_, _ = io.WriteString(c, begun)
				close(silent)
				readRequest(reader) // returns when the client closes the connection
				close(gone)
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-silent
				cancel(why)
			}()
			response, err := newTransport(t).RoundTrip(request(t, "POST", url, "").WithContext(ctx))
			if err == nil {
				_, err = io.ReadAll(response.Body)
			}
			if !errors.Is(err, why) {
				t.Error(err)
			}
			<-gone
		})
	}
	t.Run("before the request", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if _, err := newTransport(t).RoundTrip(request(t, "POST", "http://127.0.0.1:1", "").WithContext(ctx)); !errors.Is(err, why) {
			t.Error(err)
		}
	})
}

// TestClosedBody closes the body of an endless response, and checks that the server notices.
func TestClosedBody(t *testing.T) {
	ended := make(chan bool)
	url, _ := serveRaw(t, func(c net.Conn, reader *bufio.Reader) {
		readRequest(reader)
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		for err == nil {
			_, err = io.WriteString(c, strings.Repeat("data: x\n\n", 100))
		}
		close(ended)
	})
	transport := newTransport(t)
	response, err := transport.RoundTrip(request(t, "POST", url, ""))
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, response.Body)
		read <- err
	}()
	response.Body.Close()
	response.Body.Close()
	if err := <-read; err == nil {
		t.Error("the body was read to its end")
	}
	<-ended
	if n, _ := transport.idle.count(); n != 0 {
		t.Errorf("%d connections are idle", n)
	}
}

// refusingConnection accepts a part of what is written and then fails, like a connection whose server has read enough.
type refusingConnection struct {
	net.Conn // nil: no other method is called
	answer   io.Reader
	closed   bool
}

func (c *refusingConnection) Write(p []byte) (int, error) { return min(len(p), 10), io.ErrClosedPipe }
func (c *refusingConnection) Read(p []byte) (int, error)  { return c.answer.Read(p) }
func (c *refusingConnection) Close() error                { c.closed = true; return nil }

// TestAnsweredEarly gets a response from a server that does not accept the whole request, for example because its header is too long.
func TestAnsweredEarly(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.1 431 Too Much\r\nContent-Length: 3\r\n\r\nlot": "431 Too Much",
		"": io.ErrClosedPipe.Error(),
	} {
		c := &refusingConnection{answer: strings.NewReader(answer)}
		transport := newTransport(t)
		transport.Dial = func(context.Context, string, string) (net.Conn, error) { return c, nil }
		response, err := transport.RoundTrip(request(t, "POST", "http://replica", "hello"))
		got := fmt.Sprint(err)
		if err == nil {
			got = response.Status
			_, _ = io.Copy(io.Discard, response.Body)
		}
		if got != want || !c.closed {
			t.Errorf("%s, closed: %v; want %s", got, c.closed, want)
		}
	}
}

// TestOthers sends requests that do not fit into one write, or have no known length.
func TestOthers(t *testing.T) {
	transport := newTransport(t)
	for name, r := range map[string]*http.Request{
		"large":          request(t, "POST", "http://127.0.0.1:1", strings.Repeat("x", maxBody+1)),
		"TLS":            request(t, "GET", "https://127.0.0.1:1", ""),
		"CONNECT":        request(t, "CONNECT", "http://127.0.0.1:1", ""),
		"unknown length": {Method: "POST", URL: request(t, "GET", "http://127.0.0.1:1", "").URL, ContentLength: -1, Body: io.NopCloser(strings.NewReader("x"))},
		"no length":      {Method: "POST", URL: request(t, "GET", "http://127.0.0.1:1", "").URL, Body: io.NopCloser(strings.NewReader("x"))},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := transport.RoundTrip(r); err == nil || !strings.Contains(err.Error(), "went to the other transport") {
				t.Error(err)
			}
		})
	}
}

func (i *idle) count() (connections int, checked bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, list := range i.of {
		connections += len(list)
	}
	return connections, i.checked
}

// TestIdle leaves connections idle. Those that are idle for too long are closed, and no goroutine waits for them.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []net.Conn
		transport := &Transport{Others: refusing{}, Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			servers = append(servers, server)
			go func() {
				for reader := bufio.NewReader(server); readRequest(reader); {
					_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}()
			return client, nil
		}}
		ask := func() *http.Response {
			response, err := transport.RoundTrip(request(t, "POST", "http://replica", "hello"))
			if err != nil {
				t.Fatal(err)
			}
			return response
		}
		finish := func(response *http.Response) {
			if body, err := io.ReadAll(response.Body); string(body) != "ok" || err != nil {
				t.Fatalf("%q, %v", body, err)
			}
		}
		first, second := ask(), ask()
		finish(first)
		finish(second)
		time.Sleep(maxIdleFor - time.Second)
		finish(ask()) // on one of the two
		if len(servers) != 2 {
			t.Errorf("%d connections, want 2", len(servers))
		}
		time.Sleep(checkEvery + time.Second)
		if n, _ := transport.idle.count(); n != 1 {
			t.Errorf("%d connections are idle, want 1", n)
		}
		time.Sleep(maxIdleFor + checkEvery)
		if n, checked := transport.idle.count(); n != 0 || checked {
			t.Errorf("%d connections are idle after the last request, and checked: %v", n, checked)
		}
		finish(ask())
		if len(servers) != 3 {
			t.Errorf("%d connections, want 3", len(servers))
		}
		transport.CloseIdleConnections() // otherwise the test panics, since goroutines of its bubble are left
	})
}

// TestManyAtOnce sends requests from many goroutines, some of which give up, and checks that each gets its own response.
func TestManyAtOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	transport := newTransport(t)
	failed := make(chan error)
	for worker := range 16 {
		go func() {
			failed <- func() error {
				for i := range 100 {
					text := fmt.Sprintf("%d of %d", i, worker)
					ctx, cancel := context.WithCancel(t.Context())
					if i%7 == 0 {
						go cancel()
					}
					response, err := transport.RoundTrip(request(t, "POST", server.URL, text).WithContext(ctx))
					var body []byte
					if err == nil {
						body, err = io.ReadAll(response.Body)
					}
					cancel()
					if err == nil && string(body) != text || err != nil && i%7 != 0 {
						return fmt.Errorf("%s: %q, %w", text, body, err)
					}
				}
				return nil
			}()
		}()
	}
	for range 16 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer server.Close()
	ours := &Transport{}
	for name, transport := range map[string]http.RoundTripper{"http1": ours, "net-http": &http.Transport{MaxIdleConnsPerHost: 1024}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), "POST", server.URL, strings.NewReader("hello"))
				if err != nil {
					b.Fatal(err)
				}
				response, err := transport.RoundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		})
	}
	ours.CloseIdleConnections()
}
