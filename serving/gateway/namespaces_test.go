package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestBodiesOfNamespaces: the owner of functions in one namespace cannot use up a gateway's memory that others need, however many the functions are.
func TestBodiesOfNamespaces(t *testing.T) {
	g := New(Config{})
	reserved := func(namespace string, functions int) (sum share.Bytes) {
		for i := range functions {
			name := FunctionName{namespace, fmt.Sprint("f", i)}
			if err := g.SetFunction(Function{FunctionName: name}); err != nil {
				t.Fatal(err)
			}
			f := g.function(name)
			for _, b := range []*bodies{&f.bodies, &f.answers} {
				for b.reserve(16*share.MiB, f.config.MaxBytes) {
					sum += 16 * share.MiB
				}
			}
		}
		return sum
	}
	if got := reserved("greedy", 20); got != maxNamespaceBodies {
		t.Errorf("20 functions of a namespace have %d MiB, want %d", got/share.MiB, maxNamespaceBodies/share.MiB)
	}
	if got := reserved("modest", 1); got != maxNamespaceBodies {
		t.Errorf("a function of another one has %d MiB, want %d", got/share.MiB, maxNamespaceBodies/share.MiB)
	}
	if got := reserved("late", 1); got != 0 || g.allBodies.bytes != maxAllBodies {
		t.Errorf("all have %d MiB, %d of them beyond the bound", g.allBodies.bytes/share.MiB, got/share.MiB)
	}
	for i := range 20 {
		name := FunctionName{"greedy", fmt.Sprint("f", i)}
		f := g.function(name)
		g.RemoveFunction(name) // while replicas are answering its requests
		f.bodies.release(f.bodies.bytes)
		f.answers.release(f.answers.bytes)
	}
	if g.allBodies.bytes != maxNamespaceBodies {
		t.Errorf("%d MiB are left, want those of one namespace", g.allBodies.bytes/share.MiB)
	}
	g.RemoveFunction(FunctionName{"late", "f0"})
	if len(g.namespaces) != 1 {
		t.Errorf("of %d namespaces bodies are counted, want 1", len(g.namespaces))
	}
}

// answerOf is a replica that responds to everything with the same body.
type answerOf struct {
	body  []byte
	sized bool // whether the response states its length
}

func (a answerOf) RoundTrip(*http.Request) (*http.Response, error) {
	r := &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(bytes.NewReader(a.body))}
	if a.sized {
		r.ContentLength = int64(len(a.body))
	}
	return r, nil
}

// TestRoomOfAnswers: the response to a batch is in memory until its clients have got their parts of it. A response for which there is no room is not
// read.
func TestRoomOfAnswers(t *testing.T) {
	const most = 100_000
	for _, test := range []struct {
		length int
		sized  bool
		free   share.Bytes
		ok     bool
	}{
		{0, true, most, true}, {0, false, most, true}, {most, true, most, true}, {most, false, 3 * most, true}, {most + 1, true, 3 * most, false},
		{most + 1, false, 3 * most, false}, {most, true, most - 1, false}, {most, false, most - 1, false},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			all := &bodies{bound: test.free}
			own := &bodies{within: all}
			room := reservation{of: own}
			request, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://a", nil)
			want := bytes.Repeat([]byte("x"), test.length)
			_, got, err := roundTrip(answerOf{want, test.sized}, request, most, &room)
			if (err == nil) != test.ok || test.ok && !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if all.bytes != room.bytes || own.bytes != room.bytes || test.ok && room.bytes < share.Bytes(test.length) {
				t.Errorf("%d and %d bytes are counted, %d reserved", own.bytes, all.bytes, room.bytes)
			}
			if room.release(); all.bytes != 0 || own.bytes != 0 {
				t.Errorf("%d and %d bytes are never released", own.bytes, all.bytes)
			}
		})
	}
}
