package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/gshare-dev/gshare/serving/oip/inference"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// hostile is a client that writes arbitrary HTTP/2 frames.
type hostile struct {
	*world
	net.Conn
	*http2.Framer
	headers bytes.Buffer
	encoder *hpack.Encoder
	stopped atomic.Pointer[chan struct{}] // nothing is read until the channel is closed
	ended   chan struct{}                 // closed when the server has closed the connection
	after   time.Duration                 // time from the dial until then

	resets, refused, answers, goAways atomic.Int32 // frames from the server
	status                            atomic.Value // of the latest response
}

// hostile opens a connection and reads whatever comes, unless the client is one that does not read.
func (w *world) hostile(settings ...http2.Setting) *hostile {
	w.Helper()
	c, err := w.network.dial(w.Context(), "", "gateway:80")
	if err != nil {
		w.Fatal(err)
	}
	h := &hostile{world: w, Conn: c, Framer: http2.NewFramer(c, c), ended: make(chan struct{})}
	h.encoder = hpack.NewEncoder(&h.headers)
	h.Framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	begin := time.Now()
	go func() {
		defer close(h.ended)
		for {
			h.wait()
			frame, err := h.ReadFrame()
			if err != nil {
				h.after = time.Since(begin)
				return
			}
			switch f := frame.(type) {
			case *http2.RSTStreamFrame:
				h.resets.Add(1)
				if f.ErrCode == http2.ErrCodeRefusedStream {
					h.refused.Add(1)
				}
			case *http2.GoAwayFrame:
				h.goAways.Add(1)
			case *http2.MetaHeadersFrame:
				for _, field := range f.Fields {
					if field.Name == ":status" || field.Name == "grpc-status" {
						h.status.Store(field.Value)
					}
				}
				h.answers.Add(1)
			}
		}
	}()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		w.Fatal(err)
	}
	if err := h.WriteSettings(settings...); err != nil {
		w.Fatal(err)
	}
	return h
}

// block returns the header block of a call with additional fields, given as pairs.
func (h *hostile) block(fields ...string) []byte {
	h.headers.Reset()
	all := append([]string{":method", "POST", ":scheme", "http", ":authority", "resnet"}, fields...)
	if !slices.Contains(fields, ":path") {
		all = append(all[:6:6], append([]string{":path", inferMethod, "content-type", grpcType, "te", "trailers"}, fields...)...)
	}
	for i := 0; i < len(all); i += 2 {
		_ = h.encoder.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}) // cannot fail in memory
	}
	return bytes.Clone(h.headers.Bytes())
}

// held returns how many bytes of bodies the gateway holds.
func (w *world) held() share.Bytes {
	b := &w.gateway.function(resnet).bodies
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

func (h *hostile) wait() {
	if c := h.stopped.Load(); c != nil {
		<-*c
	}
}

// open begins a call.
func (h *hostile) open(stream uint32, fields ...string) error {
	return h.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: h.block(fields...), EndHeaders: true})
}

// TestHostileHTTP2 does what no honest HTTP/2 client does. None of it reaches a replica or is kept, and other clients are served.
func TestHostileHTTP2(t *testing.T) {
	message := func(length uint32, body string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{0}, length), body...)
	}
	for name, test := range map[string]struct {
		do   func(h *hostile)
		want func(h *hostile) bool
	}{
		"nothing": {func(*hostile) {}, func(h *hostile) bool { <-h.ended; return h.after <= idleTimeout+time.Second }},
		"a header that does not end": {
			func(h *hostile) {
				_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.block()})
			},
			func(h *hostile) bool { <-h.ended; return h.after <= idleTimeout+time.Second },
		},
		"a flood of headers": {
			func(h *hostile) {
				_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.block()})
				for range 10_000 {
					if h.WriteContinuation(1, false, bytes.Repeat([]byte{0x40, 1, 'a', 1, 'b'}, 1000)) != nil {
						return
					}
				}
			},
			func(h *hostile) bool { <-h.ended; return h.after <= 2*time.Second },
		},
		"a long header": {
			func(h *hostile) { _ = h.open(1, "x-a", strings.Repeat("x", 100<<10)) },
			func(h *hostile) bool { return h.resets.Load()+h.goAways.Load() > 0 || h.status.Load() == "431" },
		},
		"a frame that is too large": {
			func(h *hostile) {
				_ = h.open(1)
				go h.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 2<<20))
			},
			func(h *hostile) bool { <-h.ended; return h.goAways.Load() > 0 },
		},
		"streams without bodies": {
			func(h *hostile) {
				for i := range uint32(maxStreams + 10) {
					_ = h.open(2*i + 1)
				}
			},
			func(h *hostile) bool {
				refused := h.refused.Load()
				time.Sleep(bodyTimeout)
				synctest.Wait()
				return refused == 10 && h.answers.Load() == maxStreams && h.status.Load() == "4"
			},
		},
		"rapid resets": {
			func(h *hostile) {
				for i := range uint32(6 * maxStreams) {
					if h.open(2*i+1) != nil || h.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
						return
					}
				}
			},
			func(*hostile) bool { return true },
		},
		"a message that does not come": {
			func(h *hostile) {
				_ = h.open(1)
				_ = h.WriteData(1, false, message(500, "x"))
			},
			func(h *hostile) bool {
				held := h.held()
				time.Sleep(bodyTimeout)
				synctest.Wait()
				return held == 505 && h.status.Load() == "4"
			},
		},
		"a length of 0, and no end": {
			func(h *hostile) { _ = h.open(1, "content-length", "0") },
			func(h *hostile) bool {
				time.Sleep(bodyTimeout)
				synctest.Wait()
				return h.status.Load() == "4"
			},
		},
		"a length that is none, and no end": {
			func(h *hostile) { _ = h.open(1, "content-length", "x") },
			func(h *hostile) bool {
				time.Sleep(bodyTimeout)
				synctest.Wait()
				return h.status.Load() == "4"
			},
		},
		"a stream for whose first message is no room": {
			func(h *hostile) {
				h.gateway.function(resnet).bodies.reserve(1999, 2000)
				_ = h.open(1, ":path", streamMethod, "content-type", grpcType)
				_ = h.WriteData(1, false, message(1, "x"))
			},
			func(h *hostile) bool {
				h.gateway.function(resnet).bodies.release(1999)
				return h.status.Load() == "8"
			},
		},
		"a message of 4 GiB": {
			func(h *hostile) {
				_ = h.open(1)
				_ = h.WriteData(1, false, message(1<<32-1, ""))
			},
			func(h *hostile) bool { return h.status.Load() == "8" },
		},
		"many messages": {
			func(h *hostile) {
				_ = h.open(1)
				for range 1000 {
					_ = h.WriteData(1, false, message(0, ""))
				}
			},
			func(h *hostile) bool { return h.status.Load() == "8" },
		},
		"a message that is broken off": {
			func(h *hostile) {
				_ = h.open(1)
				_ = h.WriteData(1, false, message(500, "x"))
				_ = h.WriteRSTStream(1, http2.ErrCodeCancel)
			},
			func(h *hostile) bool { l := h.gateway.Load(resnet); return l.Gone == 1 && l.Arrived == 1 },
		},
		"half a message": {
			func(h *hostile) {
				_ = h.open(1)
				_ = h.WriteData(1, true, message(10, "x"))
			},
			func(h *hostile) bool { return h.status.Load() == "1" },
		},
		"more than the window": {
			func(h *hostile) {
				_ = h.open(1)
				_ = h.WriteData(1, false, message(900, ""))
				for range 100 {
					if h.WriteData(1, false, make([]byte, 1<<14)) != nil {
						return
					}
				}
			},
			func(h *hostile) bool { return true },
		},
		"a timeout that is none": {
			func(h *hostile) { _ = h.open(1, "grpc-timeout", "-1S") },
			func(h *hostile) bool { return h.status.Load() == "3" },
		},
		"a stream that ends in its first message": {
			func(h *hostile) {
				_ = h.open(1, "grpc-timeout", "1S")
				_ = h.WriteRSTStream(1, http2.ErrCodeCancel)
			},
			func(h *hostile) bool { return true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{MaxBody: 1000, MaxBytes: 2000}, func(w *world) {
				m := &grpcModel{}
				w.grpcReplicas(m, 1, 0, "a")
				h := w.hostile()
				test.do(h)
				synctest.Wait()
				if !test.want(h) {
					w.Errorf("%d resets, %d of them refusals, %d answers, the last with status %v, %d times go away, connection ended after %v",
						h.resets.Load(), h.refused.Load(), h.answers.Load(), h.status.Load(), h.goAways.Load(), h.after)
				}
				if len(m.batches) > 0 {
					w.Error("it has reached the replica")
				}
				if err := call(w.Context(), w.dial("resnet"), "honest", 1); err != nil {
					w.Errorf("an honest call: %v", err)
				}
				h.Conn.Close()
				synctest.Wait()
				if l := w.gateway.Load(resnet); w.held() != 0 || l.Waiting+l.InFlight > 0 {
					w.Errorf("%d bytes are never released; %+v", w.held(), l)
				}
				time.Sleep(2 * time.Second) // the server closes connections slightly later
			})
		})
	}
}

// TestHTTP2ClientThatDoesNotRead checks that if a client does not take its responses, the credit is returned after a while and the server keeps
// nothing. One client does not open its window, another one does not read at all.
func TestHTTP2ClientThatDoesNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		values int
		fields []string
		reads  bool
	}{
		"no window, large answer":   {3000, nil, true},
		"no window, small answer":   {1, nil, true},
		"no window, without gRPC":   {1, []string{":path", "/plain"}, true},
		"reads nothing":             {3000, nil, false},
		"reads nothing, other path": {1, []string{":path", "/plain"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				w.grpcReplicas(&grpcModel{}, 1, 0, "a")
				w.gateway.upstream = upstream{make([]byte, 100)}
				h := w.hostile(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
				synctest.Wait()
				again := make(chan struct{})
				if !c.reads {
					h.stopped.Store(&again)
				}
				body := encode(w, inferRequest("1", make([]byte, c.values)...))
				go func() { // of one that does not read, the server may not read either
					_ = h.open(1, c.fields...)
					_ = h.WriteData(1, true, body)
				}()
				synctest.Wait()
				time.Sleep(2*writeTimeout + pingAfter + pingTimeout)
				synctest.Wait()
				if l := w.gateway.Load(resnet); l.Arrived != 1 || l.InFlight != 0 {
					w.Errorf("%+v", l)
				}
				if c.reads && h.resets.Load() != 1 {
					w.Errorf("%d streams were reset", h.resets.Load())
				}
				if _, err := h.Conn.Write(make([]byte, 1)); !c.reads && err == nil {
					w.Error("the connection is open")
				}
				if err := call(w.Context(), w.dial("resnet"), "honest", 1); err != nil {
					w.Errorf("an honest call: %v", err)
				}
				if !c.reads {
					close(again)
				}
				h.Conn.Close()
				<-h.ended
				time.Sleep(2 * time.Second) // the server closes connections slightly later
			})
		})
	}
}

// TestStatusThatIsNone checks that a replica that responds with a status that cannot be passed on counts as failed, and that its credit is
// returned.
func TestStatusThatIsNone(t *testing.T) {
	for _, code := range []string{"12345", "1000", "99", "-1"} {
		t.Run(code, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				l := &listener{connections: make(chan net.Conn), closed: make(chan struct{})}
				defer l.Close()
				w.network.servers["a:80"] = l
				go func() {
					c, err := l.Accept()
					if err != nil {
						return
					}
					defer c.Close()
					_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
					framer := http2.NewFramer(c, c)
					settled := make(chan struct{})
					go func() { defer close(settled); _ = framer.WriteSettings() }() // the client may not be reading yet
					for {
						frame, err := framer.ReadFrame()
						if err != nil {
							return
						}
						if h, ok := frame.(*http2.HeadersFrame); ok {
							var answer bytes.Buffer
							_ = hpack.NewEncoder(&answer).WriteField(hpack.HeaderField{Name: ":status", Value: code})
							block := http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: answer.Bytes(), EndHeaders: true, EndStream: true}
							go func() { <-settled; _ = framer.WriteHeaders(block) }()
						}
					}
				}()
				if err := w.gateway.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80"}}); err != nil {
					w.Fatal(err)
				}
				if err := call(w.Context(), w.dial("resnet"), "1", 1); status.Code(err) != codes.Unavailable {
					w.Error(err)
				}
				synctest.Wait() // by then the connection is idle
				if l := w.gateway.Load(resnet); l.Failed != 1 || l.InFlight != 0 || len(w.gateway.function(resnet).replicas[0].flights) != 0 {
					w.Errorf("%+v", l)
				}
			})
		})
	}
}

// avoided returns how many replicas get no requests because they are considered failed.
func (w *world) avoided() (n int) {
	f := w.gateway.function(resnet)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.replicas {
		if r.avoid.After(time.Now()) {
			n++
		}
	}
	return n
}

// TestReplicaIsNotBlamed checks that a client's errors in the middle of an exchange do not make the gateway avoid the replica for others.
func TestReplicaIsNotBlamed(t *testing.T) {
	for name, c := range map[string]struct {
		fields []string
		do     func(h *hostile)
		want   string // gRPC status
	}{
		"a stream that is shorter than its length": {
			[]string{"content-length", "1000"}, func(h *hostile) { _ = h.WriteData(1, true, []byte{0}) }, "1",
		},
		"a stream that is longer than its length": {
			[]string{"content-length", "50"}, func(h *hostile) { _ = h.WriteData(1, true, make([]byte, 100)) }, "",
		},
		"a stream that is reset": {
			nil, func(h *hostile) { _ = h.WriteRSTStream(1, http2.ErrCodeCancel) }, "",
		},
		"a connection that ends": {nil, func(h *hostile) { h.Conn.Close() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				m := &grpcModel{silent: true}
				w.grpcReplicas(m, 1, 0, "a")
				if err := call(w.Context(), w.dial("resnet"), "honest", 1); err != nil {
					w.Error(err)
				}
				h := w.hostile()
				_ = h.open(1, append([]string{":path", streamMethod, "content-type", grpcType}, c.fields...)...)
				_ = h.WriteData(1, false, encode(w, inferRequest("1", 1)))
				synctest.Wait()
				c.do(h)
				synctest.Wait()
				if got, _ := h.status.Load().(string); w.avoided() > 0 || got != c.want {
					w.Errorf("%d replicas are avoided, status %q", w.avoided(), got)
				}
				if l := w.gateway.Load(resnet); l.Gone != 1 || l.Answered != 1 || l.InFlight != 0 {
					w.Errorf("%+v", l)
				}
				h.Conn.Close()
				synctest.Wait()
				time.Sleep(2 * time.Second) // the server closes connections slightly later
			})
		})
	}
}

// TestInvalidHTTP2 checks that a request is refused that cannot be expressed in HTTP/1, or would not reach a gRPC replica, and that no replica
// is avoided because of it.
func TestInvalidHTTP2(t *testing.T) {
	for name, c := range map[string]struct{ method, authority, path, contentType, value, status string }{
		"method":           {"GET /x HTTP/1.1", "resnet", "/", "text/plain", "", "400"},
		"authority":        {"GET", "resnet: x\"y", "/", "text/plain", "", "400"},
		"authority, gRPC":  {"POST", "resnet: x\"y", inferMethod, grpcType, "", "3"},
		"query":            {"GET", "resnet", "/a?b HTTP/1.0", "text/plain", "", "400"},
		"header, of gRPC":  {"POST", "resnet", inferMethod, grpcType, strings.Repeat("x", 5000), "3"},
		"honest, the path": {"GET", "resnet", "/a b?c=%20d", "text/plain", "", "200"},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				m := &grpcModel{took: constant(ms)}
				w.replicas(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), 1, 0, "a", "b")
				if c.contentType == grpcType {
					w.grpcReplicas(m, 1, 0, "a", "b")
					var wait sync.WaitGroup
					for range 2 { // so that both sides have announced their header limits
						wait.Go(func() {
							if err := call(w.Context(), w.dial("resnet"), "honest", 1); err != nil {
								w.Error(err)
							}
						})
					}
					wait.Wait()
				}
				before := w.gateway.Load(resnet)
				h := w.hostile()
				h.headers.Reset()
				fields := []string{":method", c.method, ":scheme", "http", ":authority", c.authority, ":path", c.path, "content-type", c.contentType, "x-a", c.value}
				for i := 0; i < len(fields); i += 2 {
					_ = h.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
				}
				_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.headers.Bytes(), EndHeaders: true, EndStream: true})
				synctest.Wait()
				l := w.gateway.Load(resnet)
				if h.status.Load() != c.status || w.avoided() > 0 || l.InFlight != 0 || c.status != "200" && l.Refused != before.Refused+1 {
					w.Errorf("status %v, %d replicas are avoided; %+v", h.status.Load(), w.avoided(), l)
				}
				h.Conn.Close()
				synctest.Wait()
				time.Sleep(2 * time.Second) // the server closes connections slightly later
			})
		})
	}
}

// TestIdleStreamWithoutAnswer checks that a stream without traffic ends as idle even if its replica has not begun to respond.
func TestIdleStreamWithoutAnswer(t *testing.T) {
	start(t, Function{}, func(w *world) {
		w.grpcReplicas(&grpcModel{silent: true}, 1, 0, "a")
		c := w.dial("resnet")
		if err := call(w.Context(), c, "honest", 1); err != nil {
			w.Error(err)
		}
		s, err := c.NewStream(w.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
		if err != nil {
			w.Fatal(err)
		}
		if err := s.SendMsg(inferRequest("1", 1)); err != nil {
			w.Error(err)
		}
		if err := s.RecvMsg(new(pb.ModelInferResponse)); status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "nothing was sent") {
			w.Error(err)
		}
		if l := w.gateway.Load(resnet); w.avoided() > 0 || l.Failed != 1 || l.InFlight != 0 {
			w.Errorf("%d replicas are avoided; %+v", w.avoided(), l)
		}
	})
}

// TestStreamOfReplicaThatDoesNotRead checks that a stream whose replica has begun to answer, but takes nothing of what its client sends, ends as idle, or
// when its client leaves.
func TestStreamOfReplicaThatDoesNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		leaves, ended time.Duration
		said          string
		want          Load
	}{
		"idle":              {time.Hour, idleTimeout, "nothing was sent", Load{Failed: 1}},
		"its client leaves": {time.Minute, time.Minute, "canceled", Load{Gone: 1}},
	} {
		t.Run(name, func(t *testing.T) { testUnreadStream(t, c.leaves, c.ended, c.said, c.want) })
	}
}

func testUnreadStream(t *testing.T, leaves, ended time.Duration, said string, want Load) {
	start(t, Function{}, func(w *world) {
		replica := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", grpcType)
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		})}
		replica.Protocols.SetUnencryptedHTTP2(true)
		w.network.run(w.T, "a:80", replica)
		w.setReplicas(resnet, "a")
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		defer time.AfterFunc(leaves, cancel).Stop()
		s, err := w.dial("resnet").NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
		if err != nil {
			w.Fatal(err)
		}
		begin := time.Now()
		for s.SendMsg(inferRequest("1", make([]byte, 64<<10)...)) == nil {
		}
		err = s.RecvMsg(new(pb.ModelInferResponse))
		if err == nil || !strings.Contains(err.Error(), said) || time.Since(begin) != ended {
			w.Errorf("%v after %v", err, time.Since(begin))
		}
		synctest.Wait()
		if l := w.gateway.Load(resnet); w.avoided() > 0 || l.Failed != want.Failed || l.Gone != want.Gone || l.InFlight != 0 {
			w.Errorf("%d replicas are avoided; %+v", w.avoided(), l)
		}
	})
}
