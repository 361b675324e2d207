package parking

import "context"

// Checkpoint would park any process through the driver's cuCheckpointProcessCheckpoint. It supports no server: shares are served by MPS, for
// whose clients driver 580 refuses cuCheckpointProcessLock with CUDA_ERROR_NOT_SUPPORTED (docs/hardware.md), or are MIG instances, for which
// NVIDIA documents no checkpoints.
type Checkpoint struct{}

// Name implements Method.
func (Checkpoint) Name() string { return "Checkpoint" }

// CopiesToHost implements Method.
func (Checkpoint) CopiesToHost() bool { return true }

// Probe implements Method.
func (c Checkpoint) Probe(context.Context, Server) error {
	return &UnsupportedError{c.Name(), "the driver takes no checkpoints of clients of MPS, and none is known that does on MIG instances"}
}

// Park implements Method.
func (c Checkpoint) Park(ctx context.Context, s Server) error { return c.Probe(ctx, s) }

// Wake implements Method.
func (c Checkpoint) Wake(ctx context.Context, s Server) error { return c.Probe(ctx, s) }

// Restart stands for what remains to be done with a server that no other method supports: end it, and start another one when it is needed.
// As a Method it supports no server, since the server's process would not go on.
type Restart struct{}

// Name implements Method.
func (Restart) Name() string { return "Restart" }

// CopiesToHost implements Method.
func (Restart) CopiesToHost() bool { return false }

// Probe implements Method.
func (r Restart) Probe(context.Context, Server) error {
	return &UnsupportedError{r.Name(), "the server is ended instead, and another one starts when it is needed"}
}

// Park implements Method.
func (r Restart) Park(ctx context.Context, s Server) error { return r.Probe(ctx, s) }

// Wake implements Method.
func (r Restart) Wake(ctx context.Context, s Server) error { return r.Probe(ctx, s) }
