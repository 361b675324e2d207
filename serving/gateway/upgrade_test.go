package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/websocket"
)

// echoSocket is a WebSocket server that echoes messages until its client closes, or after the message "bye".
var echoSocket = websocket.Server{Handler: func(c *websocket.Conn) {
	for {
		var text string
		if websocket.Message.Receive(c, &text) != nil {
			return
		}
		_ = websocket.Message.Send(c, "echo "+text)
		if text == "bye" {
			return
		}
	}
}}

// openSocket connects a WebSocket client to the function by way of a gateway.
func openSocket(t *testing.T, n *network, address, url, host string) (*websocket.Conn, error) {
	t.Helper()
	config, err := websocket.NewConfig("ws://"+host+url, "http://page.example.com")
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.dial(t.Context(), "", address)
	if err != nil {
		t.Fatal(err)
	}
	return websocket.NewClient(config, c)
}

// converse checks that a message comes back.
func converse(t *testing.T, c *websocket.Conn, text string) {
	t.Helper()
	var got string
	if err := websocket.Message.Send(c, text); err != nil {
		t.Error(err)
	} else if err := websocket.Message.Receive(c, &got); err != nil || got != "echo "+text {
		t.Errorf("%q %v", got, err)
	}
}

// TestWebSocket checks that a WebSocket passes in both directions for as long as it is used, holds its replica's place as one request until either side
// closes it, and says nothing about how long requests take.
func TestWebSocket(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, c := range map[string]struct {
		url, host string
		end       func(*testing.T, *websocket.Conn)
	}{
		"client closes":    {"/ws", "resnet", func(_ *testing.T, c *websocket.Conn) { c.Close() }},
		"replica closes":   {"/ws", "resnet", func(t *testing.T, c *websocket.Conn) { converse(t, c, "bye") }},
		"nothing comes":    {"/ws", "resnet", func(*testing.T, *websocket.Conn) { time.Sleep(idleTimeout) }},
		"named by a query": {"/v1/realtime?model=resnet", "gateway.example.com", func(_ *testing.T, c *websocket.Conn) { c.Close() }},
	} {
		for _, protocol := range []Protocol{HTTP, OpenAI} {
			if protocol == HTTP && c.host != "resnet" {
				continue
			}
			t.Run(name+", "+protocol.String(), func(t *testing.T) {
				start(t, Function{Protocol: protocol, SLO: 100 * ms, Timeout: time.Minute}, func(w *world) {
					w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						if !isUpgrade(r) {
							echo(0).ServeHTTP(rw, r)
							return
						}
						time.Sleep(10 * ms)
						echoSocket.ServeHTTP(rw, r)
					}), 1, 0, "a")
					s, err := openSocket(w.T, w.network, "gateway:80", c.url, c.host)
					if err != nil {
						w.Fatal(err)
					}
					for range 10 {
						converse(w.T, s, "hello")
						converse(w.T, s, long)
						time.Sleep(idleTimeout / 2)
					}
					if l := w.gateway.Load(resnet); l.Arrived != 1 || l.InFlight != 1 {
						w.Errorf("while it is open: %+v", l)
					}
					c.end(w.T, s)
					time.Sleep(ms)
					if l := w.gateway.Load(resnet); l.Arrived != 1 || l.Answered != 1 || l.InTime != 1 || l.InFlight != 0 {
						w.Errorf("after its end: %+v", l)
					}
					var text string
					if err := websocket.Message.Receive(s, &text); err == nil {
						w.Errorf("after its end: %q", text)
					}
					if a := w.ask(w.Context(), "next"); a.status != 200 || a.took != 0 {
						w.Errorf("the next one: %+v", a)
					}
					s.Close()
				})
			})
		}
	}
}

// TestWebSocketThroughPeer checks that a WebSocket passes to the gateway that owns the function.
func TestWebSocketThroughPeer(t *testing.T) {
	startCluster(t, Function{}, 2, false, func(c *cluster) {
		c.network.serve(c.T, "a:80", echoSocket)
		for _, m := range c.members {
			if err := m.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80"}}); err != nil {
				c.Fatal(err)
			}
		}
		s, err := openSocket(c.T, c.network, c.members[1].name+":80", "/ws", "resnet")
		if err != nil {
			c.Fatal(err)
		}
		converse(c.T, s, "hello")
		if l := c.members[0].Load(resnet); l.InFlight != 1 {
			c.Errorf("while it is open: %+v", l)
		}
		s.Close()
		time.Sleep(ms)
		synctest.Wait()
		if l := c.members[0].Load(resnet); l.Answered != 1 || l.InFlight != 0 {
			c.Errorf("after its end: %+v", l)
		}
	})
}

// TestUpgrade checks which requests for another protocol reach a replica as such, and that only the protocol that was asked for is switched to.
func TestUpgrade(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: resnet\r\nConnection: "
	for name, c := range map[string]struct {
		request, answer string // of the client and of the replica
		asked           string // what the replica gets
		want            string
	}{
		"another protocol":     {get + "keep-alive, Upgrade\r\nUpgrade: foo/1\r\n\r\n", "101 Odd\r\nConnection: upgrade\r\nUpgrade: Foo/1\r\nX-A: b\r\n\r\nfoo", "foo/1", "HTTP/1.1 101 "},
		"not agreed to":        {get + "Upgrade\r\nUpgrade: foo\r\n\r\n", "200 OK\r\nContent-Length: 0\r\n\r\n", "foo", "HTTP/1.1 200 "},
		"refused":              {get + "Upgrade\r\nUpgrade: foo\r\n\r\n", "426 Upgrade Required\r\nContent-Length: 0\r\n\r\n", "foo", "HTTP/1.1 426 "},
		"to yet another":       {get + "Upgrade\r\nUpgrade: foo\r\n\r\n", "101 Odd\r\nConnection: upgrade\r\nUpgrade: bar\r\n\r\n", "foo", "HTTP/1.1 502 "},
		"not asked for":        {get + "keep-alive\r\nUpgrade: foo\r\n\r\n", "101 Odd\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n", "", "HTTP/1.1 502 "},
		"HTTP/2":               {get + "Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: a\r\n\r\n", "200 OK\r\nContent-Length: 0\r\n\r\n", "", "HTTP/1.1 200 "},
		"a choice":             {get + "Upgrade\r\nUpgrade: foo, h2c\r\n\r\n", "200 OK\r\nContent-Length: 0\r\n\r\n", "", "HTTP/1.1 200 "},
		"an older HTTP":        {strings.Replace(get, "1.1", "1.0", 1) + "Upgrade\r\nUpgrade: foo\r\n\r\n", "200 OK\r\nContent-Length: 0\r\n\r\n", "", "HTTP/1.0 200 "},
		"with a body before":   {strings.Replace(get, "GET", "POST", 1) + "Upgrade\r\nUpgrade: foo\r\nContent-Length: 1\r\n\r\na", "101 Odd\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\nfoo", "foo", "HTTP/1.1 101 "},
		"TLS, as HTTP version": {get + "Upgrade\r\nUpgrade: HTTP/2.0\r\n\r\n", "200 OK\r\nContent-Length: 0\r\n\r\n", "", "HTTP/1.1 200 "},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				w.replicas(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if got := r.Header.Get("Upgrade"); got != c.asked || (got != "") != strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
						w.Errorf("the replica gets %q", r.Header)
					}
					n, _, err := http.NewResponseController(rw).Hijack()
					if err != nil {
						w.Error(err)
						return
					}
					_, _ = io.WriteString(n, "HTTP/1.1 "+c.answer)
					time.Sleep(ms)
					n.Close()
				}), 1, 0, "a")
				a := w.raw(c.request, 1<<20)
				if !strings.HasPrefix(a.body, c.want) || strings.Contains(c.want, "101") != strings.HasSuffix(a.body, "\r\n\r\nfoo") {
					w.Errorf("%q", a.body)
				}
				time.Sleep(10 * ms) // the replica has ended, too
				if l := w.gateway.Load(resnet); l.InFlight != 0 || l.Arrived != 1 {
					w.Errorf("%+v", l)
				}
			})
		})
	}
}

// TestUpgradeHalfClosed checks over TCP that the end of what one side sends reaches the other, which may still answer.
func TestUpgradeHalfClosed(t *testing.T) {
	replica, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer replica.Close()
	go http.Serve(replica, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		c, b, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n")
		all, _ := io.ReadAll(b)
		_, _ = c.Write(all)
	}))
	g := New(Config{})
	if err := g.SetFunction(Function{FunctionName: resnet}); err != nil {
		t.Fatal(err)
	}
	if err := g.SetReplicas(resnet, []Replica{{ID: "a", Address: replica.Addr().String()}}); err != nil {
		t.Fatal(err)
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := g.Server()
	go server.Serve(front)
	defer server.Close()
	c, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: resnet\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\nall of ")
	from := bufio.NewReader(c)
	if response, err := http.ReadResponse(from, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", response, err)
	}
	_, _ = io.WriteString(c, "it")
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(from); err != nil || string(got) != "all of it" {
		t.Errorf("%q %v", got, err)
	}
}
