package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// scripted is a replica that reads a request and then sends what it is told to, byte for byte. It notes the request as it came.
type scripted struct {
	answer  []string // parts, a second apart
	got     string
	trailer http.Header
}

func (s *scripted) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.got, s.trailer = fmt.Sprint(r.Method, r.Header), r.Trailer
	c, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	for i, part := range s.answer {
		if i > 0 {
			time.Sleep(time.Second)
		}
		if _, err := io.WriteString(c, part); err != nil {
			return
		}
	}
	time.Sleep(ms)
}

// TestAnswersPass checks that clients get of an answer what the replica has said, and nothing that it has not, through both transports, and also by way of
// the gateway that owns the function.
func TestAnswersPass(t *testing.T) {
	const length3 = "Content-Length: 3\r\n\r\nabc"
	for name, c := range map[string]struct {
		method  string
		answer  []string
		want    []string // in this order
		without string   // in no line
	}{
		"no Content-Type":       {"POST", []string{"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"}, []string{"HTTP/1.1 200 OK", "<html>"}, "Content-Type"},
		"no Content-Type, JSON": {"POST", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"}, []string{"HTTP/1.1 200 OK", "{}"}, "Content-Type"},
		"Content-Type":          {"POST", []string{"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n" + length3}, []string{"Content-Type: a/b", "abc"}, "text/"},
		"Server-Timing":         {"POST", []string{"HTTP/1.1 200 OK\r\nServer-Timing: app;dur=12.3\r\n" + length3}, []string{"Server-Timing: app;dur=12.3", "Server-Timing: queue;dur=0.0", "abc"}, "X-Gshare-Reason"},
		"trailer": {"POST", []string{"HTTP/1.1 200 OK\r\nTrailer: X-T, X-U\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: v\r\nX-U: w\r\n\r\n"},
			[]string{"Trailer: X-T, X-U", "\r\n\r\n3\r\nabc\r\n0\r\nX-", ": v", "\r\n\r\n"}, "X-Gshare-Reason"},
		"trailer that was not announced": {"POST", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: v\r\n\r\n"}, []string{"abc\r\n0\r\nX-T: v\r\n\r\n"}, "X-Gshare-Reason"},
		"trailer with a length":          {"POST", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nContent-Length: 5\r\nX-T: v\r\n\r\n"}, []string{"abc\r\n0\r\nX-T: v\r\n\r\n"}, "Content-Length"},
		"early hints": {"POST", []string{"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "HTTP/1.1 102 Processing\r\n\r\n", "HTTP/1.1 200 OK\r\n" + length3},
			[]string{"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK", "abc"}, "X-Gshare-Reason"},
		"continue":              {"POST", []string{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n" + length3}, []string{"HTTP/1.1 200 OK", "abc"}, "100"},
		"HEAD":                  {"HEAD", []string{"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"}, []string{"HTTP/1.1 200 OK", "Content-Length: 5000", "\r\n\r\n"}, "chunked"},
		"HEAD without a length": {"HEAD", []string{"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n"}, []string{"HTTP/1.1 200 OK", "X-A: b", "\r\n\r\n"}, "Content-Length"},
		"not modified":          {"GET", []string{"HTTP/1.1 304 Not Modified\r\nEtag: a\r\n\r\n"}, []string{"HTTP/1.1 304 Not Modified", "Etag: a", "\r\n\r\n"}, "Content-Length"},
	} {
		check := func(t *testing.T, n *network, address string, body int) {
			conn, err := n.dial(t.Context(), "", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			request := c.method + " / HTTP/1.1\r\nHost: resnet\r\nConnection: close\r\n\r\n"
			if c.method == "POST" {
				request = fmt.Sprintf("POST / HTTP/1.1\r\nHost: resnet\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", body, strings.Repeat("x", body))
			}
			go io.WriteString(conn, request)
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			all, err := io.ReadAll(conn)
			if err != nil {
				t.Error(err)
			}
			time.Sleep(10 * ms) // the replica has ended, too
			rest, ok := string(all), false
			for _, want := range c.want {
				if _, rest, ok = strings.Cut(rest, want); !ok {
					t.Errorf("want %q in its place in\n%s", want, all)
					return
				}
			}
			if strings.Contains(string(all), c.without) {
				t.Errorf("there is %q in\n%s", c.without, all)
			}
		}
		for _, body := range []int{1, 100_000} {
			if body > 1 && c.method != "POST" {
				continue
			}
			t.Run(fmt.Sprint(name, ", body of ", body), func(t *testing.T) {
				start(t, Function{}, func(w *world) {
					w.replicas(&scripted{answer: c.answer}, 1, 0, "a")
					check(w.T, w.network, "gateway:80", body)
				})
			})
		}
		t.Run(name+", by way of another gateway", func(t *testing.T) {
			startCluster(t, Function{}, 2, false, func(cl *cluster) {
				cl.network.serve(cl.T, "a:80", &scripted{answer: c.answer})
				for _, m := range cl.members {
					if err := m.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80"}}); err != nil {
						cl.Fatal(err)
					}
				}
				check(cl.T, cl.network, cl.members[1].name+":80", 1)
			})
		})
	}
}

// TestEarlyHintsAreEarly checks that hints come before the answer.
func TestEarlyHintsAreEarly(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(&scripted{answer: []string{"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}}, 1, 0, "a")
		c, err := w.network.dial(w.Context(), "", "gateway:80")
		if err != nil {
			w.Fatal(err)
		}
		defer c.Close()
		go io.WriteString(c, "GET / HTTP/1.1\r\nHost: resnet\r\n\r\n")
		begin := time.Now()
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "HTTP/1.1 103 Early Hints\r\n" || time.Since(begin) != 0 {
			w.Errorf("%q %v after %v", line, err, time.Since(begin))
		}
		time.Sleep(2 * time.Second)
	})
}

// TestRequestsPass checks that replicas get of a request what the client has said, and nothing that it has not.
func TestRequestsPass(t *testing.T) {
	const chunks = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
	for name, c := range map[string]struct {
		request string
		with    string
		without []string
		trailer string
	}{
		"no User-Agent":      {"POST / HTTP/1.1\r\nHost: resnet\r\nContent-Length: 1\r\n\r\na", "POST", []string{"User-Agent"}, ""},
		"a User-Agent":       {"GET / HTTP/1.1\r\nHost: resnet\r\nUser-Agent: me\r\n\r\n", "User-Agent:[me]", []string{"Go-http"}, ""},
		"100-continue":       {"POST / HTTP/1.1\r\nHost: resnet\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na", "POST", []string{"Expect"}, ""},
		"trailer":            {"POST / HTTP/1.1\r\nHost: resnet\r\nTrailer: X-T\r\n" + chunks + "X-T: v\r\n\r\n", "POST", nil, "v"},
		"trailer, forbidden": {"POST / HTTP/1.1\r\nHost: resnet\r\nTrailer: X-T\r\n" + chunks + "X-T: v\r\nContent-Length: 9\r\n\r\n", "POST", []string{"Content-Length"}, "v"},
		"no body, trailer":   {"POST / HTTP/1.1\r\nHost: resnet\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-T: v\r\n\r\n", "POST", nil, "v"},
		"HEAD":               {"HEAD / HTTP/1.1\r\nHost: resnet\r\n\r\n", "HEAD", nil, ""},
		"OPTIONS":            {"OPTIONS /v1/a HTTP/1.1\r\nHost: resnet\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST\r\n\r\n", "Origin:[http://a]", nil, ""},
	} {
		check := func(t *testing.T, n *network, address string, replica *scripted) {
			conn, err := n.dial(t.Context(), "", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go io.WriteString(conn, c.request)
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			got, err := io.ReadAll(conn)
			if err == nil || !strings.Contains(string(got), "HTTP/1.1 204 ") {
				t.Errorf("%q %v", got, err)
			}
			if !strings.Contains(replica.got, c.with) || replica.trailer.Get("X-T") != c.trailer || replica.trailer.Get("Content-Length") != "" {
				t.Errorf("%s %v", replica.got, replica.trailer)
			}
			for _, without := range c.without {
				if strings.Contains(replica.got, without) {
					t.Errorf("%s: want no %s", replica.got, without)
				}
			}
		}
		t.Run(name, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				s := &scripted{answer: []string{"HTTP/1.1 204 No Content\r\n\r\n"}}
				w.replicas(s, 1, 0, "a")
				check(w.T, w.network, "gateway:80", s)
			})
		})
		t.Run(name+", by way of another gateway", func(t *testing.T) {
			startCluster(t, Function{}, 2, false, func(cl *cluster) {
				s := &scripted{answer: []string{"HTTP/1.1 204 No Content\r\n\r\n"}}
				cl.network.serve(cl.T, "a:80", s)
				for _, m := range cl.members {
					if err := m.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80"}}); err != nil {
						cl.Fatal(err)
					}
				}
				check(cl.T, cl.network, cl.members[1].name+":80", s)
			})
		})
	}
}

// TestConnect checks that the gateway is no tunnel, whatever the host names.
func TestConnect(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.replicas(echo(0), 1, 0, "a")
		for _, target := range []string{"resnet:80", "other:443"} {
			a := w.raw("CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n", 1<<10)
			if !strings.HasPrefix(a.body, "HTTP/1.1 405 ") || !strings.Contains(a.body, "Allow: GET") {
				w.Errorf("%s: %q", target, a.body)
			}
		}
		if l := w.gateway.Load(resnet); l.Arrived != 0 {
			w.Errorf("%+v", l)
		}
	})
}
