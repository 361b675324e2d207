package standalone

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// overHTTP serves a node and gives a client whose requests come from this process.
func overHTTP(t *testing.T, n *Node) *http.Client {
	t.Helper()
	socket := filepath.Join(n.Config.Directory, "control.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := n.NewHTTPServer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
}

func TestRunOverHTTP(t *testing.T) {
	n := newNode(t, tempDir(t))
	client := overHTTP(t, n)
	response, err := client.Post("http://agent"+control.RunsPath, "", strings.NewReader(`{"sm": 30, "memoryMiB": 1024, "name": "me"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var event control.Event
	if err := json.NewDecoder(bufio.NewReader(response.Body)).Decode(&event); err != nil || event.Grant == nil {
		t.Fatalf("%+v, %v", event, err)
	}
	status := n.Status()
	if r := status.Runs[0]; r.PID != os.Getpid() || r.UID != uint32(os.Getuid()) || r.Name != "me" {
		t.Errorf("the run is %+v", r)
	}
}

func TestBadHTTP(t *testing.T) {
	n := newNode(t, tempDir(t))
	client := overHTTP(t, n)
	for body, want := range map[string]int{
		"":            http.StatusBadRequest,
		"{":           http.StatusBadRequest,
		`{"sms": 30}`: http.StatusBadRequest,
		`{"pid": 1}`:  http.StatusBadRequest,
		`{"name": "` + strings.Repeat("x", control.MaxRequest) + `"}`: http.StatusBadRequest,
		`{"sm": 30}`: http.StatusOK, // and a refusal in it
	} {
		t.Run(body[:min(30, len(body))], func(t *testing.T) {
			response, err := client.Post("http://agent"+control.RunsPath, "", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%.30s: %s", body, response.Status)
			}
		})
	}
	if len(n.Status().Runs) != 0 {
		t.Error("something runs")
	}
}
