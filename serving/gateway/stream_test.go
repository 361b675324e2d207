package gateway

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/gshare-dev/gshare/serving/oip/inference"
)

// TestShutdownEndsStreams checks that Shutdown ends streams, and how: after the answers to what has come, with a status by which clients try again.
func TestShutdownEndsStreams(t *testing.T) {
	for name, c := range map[string]struct {
		model     *grpcModel
		closed    bool // the client has sent all before
		responses int
		want      codes.Code
		after     time.Duration
	}{
		"idle":                         {&grpcModel{}, false, 2, codes.Unavailable, 0},
		"with a request":               {&grpcModel{thinks: time.Second}, false, 2, codes.Unavailable, time.Second},
		"whose client has sent all":    {&grpcModel{thinks: time.Second}, true, 2, codes.OK, time.Second},
		"whose replica does not end":   {&grpcModel{stuck: true}, false, 2, codes.Unavailable, idleTimeout},
		"the same, client sent all":    {&grpcModel{stuck: true}, true, 2, codes.Unavailable, idleTimeout},
		"whose replica answers slowly": {&grpcModel{thinks: idleTimeout + time.Second}, false, 0, codes.Unavailable, idleTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				w.grpcReplicas(c.model, 1, 0, "a")
				s, err := w.dial("resnet").NewStream(w.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
				if err != nil {
					w.Fatal(err)
				}
				if err := s.SendMsg(inferRequest("r", 1)); err != nil {
					w.Fatal(err)
				}
				if c.closed {
					if err := s.CloseSend(); err != nil {
						w.Fatal(err)
					}
				}
				synctest.Wait()
				begin := time.Now()
				stopped := make(chan error)
				go func() { stopped <- w.server.Shutdown(w.Context()) }()
				for i := range c.responses {
					var got pb.ModelInferResponse
					if err := s.RecvMsg(&got); err != nil || got.GetId() != fmt.Sprint("r", i) {
						w.Errorf("%v %v", &got, err)
					}
				}
				err = s.RecvMsg(new(pb.ModelInferResponse))
				if errors.Is(err, io.EOF) {
					err = nil
				}
				if status.Code(err) != c.want || time.Since(begin) != c.after {
					w.Errorf("ended with %v after %v", err, time.Since(begin))
				}
				if err := <-stopped; err != nil || w.avoided() > 0 {
					w.Errorf("%v, %d replicas are avoided", err, w.avoided())
				}
				if l := w.gateway.Load(resnet); l.Answered+l.Failed != 1 || l.InFlight != 0 {
					w.Errorf("%+v", l)
				}
				time.Sleep(idleTimeout) // a replica that thinks
			})
		})
	}
}

// TestShutdownWithinMessage checks that a message that has begun when the gateway shuts down reaches the replica whole, without what follows.
func TestShutdownWithinMessage(t *testing.T) {
	start(t, Function{}, func(w *world) {
		m := &grpcModel{}
		w.grpcReplicas(m, 1, 0, "a")
		h := w.hostile()
		_ = h.open(1, ":path", streamMethod, "content-type", grpcType)
		_ = h.WriteData(1, false, encode(w, inferRequest("1", 1)))
		second, third := encode(w, inferRequest("2", 1)), encode(w, inferRequest("3", 1))
		_ = h.WriteData(1, false, second[:3])
		synctest.Wait()
		stopped := make(chan error)
		go func() { stopped <- w.server.Shutdown(w.Context()) }()
		time.Sleep(time.Second)
		if h.status.Load() != "200" {
			w.Errorf("status %v within the message", h.status.Load())
		}
		_ = h.WriteData(1, false, slices.Concat(second[3:], third))
		if err := <-stopped; err != nil {
			w.Error(err)
		}
		if h.status.Load() != fmt.Sprint(int(codes.Unavailable)) || !slices.Equal(m.ids, []string{"1", "2"}) {
			w.Errorf("status %v; the replica got %q", h.status.Load(), m.ids)
		}
		h.Conn.Close()
		synctest.Wait()
	})
}

// TestMessages checks that the bounds of messages are found however their bytes come.
func TestMessages(t *testing.T) {
	var stream []byte
	var ends []int
	for _, length := range []int{0, 1, 300, 0, 70_000, 2} {
		stream = append(append(stream, 0), byte(length>>24), byte(length>>16), byte(length>>8), byte(length))
		stream = append(stream, make([]byte, length)...)
		ends = append(ends, len(stream))
	}
	for _, size := range []int{1, 2, 4, 5, 6, 7, 1000, len(stream)} {
		var m messages
		var got []int
		for at := 0; at < len(stream); {
			at += m.next(stream[at:min(at+size, len(stream))])
			if m.isBetween() {
				got = append(got, at)
			}
		}
		if !slices.Equal(got, ends) {
			t.Errorf("%d bytes at a time: messages end at %v, want %v", size, got, ends)
		}
	}
}
