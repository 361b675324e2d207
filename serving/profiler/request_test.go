package profiler

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPath: a path with which no request can be made is refused before anything is measured.
func TestPath(t *testing.T) {
	for path, good := range map[string]bool{"": true, "/v1/caption?lang=de&x=%20": true, "/a b": true, "v1": false, "/%zz": false, "/a\nb": false} {
		if err := (&Request{Path: path}).SetDefaults("m"); (err == nil) != good {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// TestRequest sends batches that were made from the metadata of a model.
func TestRequest(t *testing.T) {
	var bodies []string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/models/m", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name": "m", "inputs": [{"name": "a", "datatype": "FP32", "shape": [-1, 2]}, {"name": "b", "datatype": "BOOL", "shape": [-1, -1]}]}`)
	})
	mux.HandleFunc("POST /v2/models/m/infer", func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(text))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	c, err := NewClient(t.Context(), Request{Method: http.MethodPost, Path: "/v2/models/m/infer", Header: http.Header{}, OIP: true}, server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, rows := range []int{1, 3} {
		if a := c.Infer(t.Context(), rows); !a.OK {
			t.Errorf("%d rows: %+v", rows, a)
		}
	}
	if len(bodies) != 2 || !strings.Contains(bodies[0], `"data":[0,0]`) || !strings.Contains(bodies[0], `"data":[false]`) || strings.Count(bodies[1], "false") != 3 {
		t.Errorf("%q", bodies)
	}
	for body, want := range map[string]string{
		`{"inputs": [{"name": "a", "datatype": "FP32", "shape": [2, 1], "data": [1, 2]}]}`: "2 rows",
		`{`: "one row of the Open Inference Protocol",
	} {
		if _, err := NewClient(t.Context(), Request{Header: http.Header{}, OIP: true, Body: []byte(body)}, "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
