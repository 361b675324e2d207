package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/test/lease"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// record writes the record of a grant that declares weights, as the agent does.
func record(t *testing.T, directory, name, namespace, slice string, weights ...share.Weights) {
	t.Helper()
	s := share.Share{SMRequest: 100, SMLimit: 100, QuotaRequest: 100, QuotaLimit: 100, Memory: share.MiB}
	g := grant.Grant{
		Owner: grant.Owner{UID: types.UID("uid-" + name), Namespace: namespace, Name: name, Container: "main"}, DeviceIDs: []string{name + "-0"},
		Model: kube.Slots, VGPUs: []kube.PlacedVGPU{{Slice: slice, Class: share.MPS, Priority: share.SLO, Share: s}}, Weights: weights, Since: time.UnixMilli(0).UTC(),
	}
	text, err := grant.Encode(g, "n")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(directory, g.ID())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "grant.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDeclared(t *testing.T) {
	named := func(digit string) share.Digest { return share.Digest("sha256:" + strings.Repeat(digit, 64)) }
	dir := t.TempDir()
	record(t, dir, "a", "team", "GPU-1", share.Weights{Digest: named("1"), Memory: 4 * share.MiB}, share.Weights{Digest: named("2"), Memory: share.MiB})
	record(t, dir, "b", "team", "GPU-1", share.Weights{Digest: named("1"), Memory: 6 * share.MiB})
	record(t, dir, "c", "other", "GPU-1", share.Weights{Digest: named("1"), Memory: 8 * share.MiB})
	record(t, dir, "d", "team", "GPU-2", share.Weights{Digest: named("3"), Memory: 8 * share.MiB})
	record(t, dir, "e", "team", "GPU-1")
	for _, id := range []string{"empty", "damaged", "folder/grant.json"} { // a grant that is being released, and one of an unknown version
		if err := os.MkdirAll(filepath.Join(dir, id), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "damaged", "grant.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Declared(dir, "GPU-1", "team")()
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]share.Bytes{}
	for d, bytes := range got {
		sizes[d.String()] = bytes
	}
	if diff := cmp.Diff(map[string]share.Bytes{string(named("1")): 6 * share.MiB, string(named("2")): share.MiB}, sizes); diff != "" {
		t.Error(diff)
	}
	leased := grant.Owner{UID: "uid-d", Namespace: "team", Name: "d", Container: "main"}
	lease.Hold(t, filepath.Join(dir, leased.ID(), "grant.json"))
	began := time.Now()
	if again, err := Declared(dir, "GPU-1", "team")(); err != nil || len(again) != len(got) || time.Since(began) > 10*time.Second {
		t.Errorf("while a container of another slice holds a lease on its record: %v, %v after %v", again, err, time.Since(began))
	}
	if got, err := Declared(filepath.Join(dir, "missing"), "GPU-1", "team")(); err == nil {
		t.Errorf("%v without records", got)
	}
}
