package oip_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/serving/oip"
)

// TestRecordedExchange repeats what test/oip has seen on the wire between clients and a server that know the protocol from KServe's published
// definitions: the same requests give the same batch, and the same response the same parts.
func TestRecordedExchange(t *testing.T) {
	stored, err := os.ReadFile("testdata/kserve.json")
	if err != nil {
		t.Fatal(err)
	}
	var exchanges map[string]struct {
		Requests, Parts [][]byte
		Batch, Response []byte
	}
	if err := json.Unmarshal(stored, &exchanges); err != nil {
		t.Fatal(err)
	}
	if len(exchanges) != 3 {
		t.Errorf("%d exchanges, want REST and two of gRPC", len(exchanges))
	}
	for name, seen := range exchanges {
		t.Run(name, func(t *testing.T) {
			var requests []*oip.Request
			length := len(seen.Response)
			for _, body := range seen.Requests {
				r, err := oip.ParseRequest(body, len(body))
				if strings.HasPrefix(name, "gRPC") {
					length = 0
					r, err = oip.ParseModelInfer(body)
				}
				if err != nil {
					t.Fatal(err)
				}
				requests = append(requests, r)
			}
			batch, errs := oip.Merge(requests)
			if got := text(&batch.Message); errs != nil || got != string(seen.Batch) {
				t.Errorf("the batch is %q, was %q; %v", got, seen.Batch, errs)
			}
			parts, err := batch.Split(seen.Response, length)
			if err != nil {
				t.Fatal(err)
			}
			for i, part := range parts {
				if got := []byte(text(part)); !bytes.Equal(got, seen.Parts[i]) {
					t.Errorf("part %d is %q, was %q", i, got, seen.Parts[i])
				}
			}
		})
	}
}
