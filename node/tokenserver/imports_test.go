package tokenserver_test

import (
	"testing"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestImports: the page tells the allowance for memory of the model store, and what a process has used of it is there for others when it has
// ended.
func TestImports(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half, func(s *tokenserver.Spec) { s.VGPUs[0].Imports = 5 * share.MiB })
	first, second := r.dial(t, "a"), r.dial(t, "a")
	if got := first.VGPUs[0].Server.ImportAllowance.Load(); got != uint64(5*share.MiB) {
		t.Errorf("allowance %d", got)
	}
	for _, c := range []struct{ imported, memory uint64 }{{400, 0}, {100, 7}} {
		first.VGPUs[0].Container.Imported.Add(c.imported)
		first.VGPUs[0].Client.Imported.Add(c.imported)
		first.VGPUs[0].Container.Memory.Add(c.memory)
		first.VGPUs[0].Client.Memory.Add(c.memory)
	}
	second.VGPUs[0].Container.Imported.Add(30)
	second.VGPUs[0].Client.Imported.Add(30)
	container := second.VGPUs[0].Container
	first.Close()
	eventually(t, "what the first has used is free", func() bool { return container.Imported.Load() == 30 && container.Memory.Load() == 0 })
	r.add(t, "b", half)
	if got := r.dial(t, "b").VGPUs[0].Server.ImportAllowance.Load(); got != 0 {
		t.Errorf("allowance %d without weights", got)
	}
}
