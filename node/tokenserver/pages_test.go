package tokenserver

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// TestPagesOfAllContainersAreLimited checks that a server refuses a process whose pages would be too many, and serves others when one of its
// processes has ended.
func TestPagesOfAllContainersAreLimited(t *testing.T) {
	server := New(Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	t.Cleanup(server.Close)
	tokens, err := token.New(token.Config{})
	if err != nil {
		t.Fatal(err)
	}
	slice, dir := server.NewSlice(tokens), t.TempDir()
	part := share.Share{SMRequest: 100, SMLimit: 100, QuotaRequest: 100, QuotaLimit: 100, Memory: 1}
	two := []VGPU{{Share: part, Slice: slice, UUID: "GPU-0"}, {Share: part, Slice: slice, UUID: "GPU-0", Index: 1}}
	if _, err := server.AddContainer(Spec{ID: "a", Dir: dir, VGPUs: two}); err != nil {
		t.Fatal(err)
	}
	server.pages.Store(maxPages - 2)
	first, err := tokenclient.Dial(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := tokenclient.Dial(dir, 0); err == nil {
		second.Close()
		t.Error("a second process is served")
	}
	first.Close()
	for end := time.Now().Add(time.Minute); server.pages.Load() != maxPages-2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d pairs of pages are left", server.pages.Load()-(maxPages-2))
		}
	}
	third, err := tokenclient.Dial(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	third.Close()
}
