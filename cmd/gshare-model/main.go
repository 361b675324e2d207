// Command gshare-model is a model server for trying out gshare: it speaks the protocols of inference servers, its weights are bytes on the GPU,
// and its kernels take the times of a table.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/cuda"
	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/model"
	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/server"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/release"
	memory "github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/vgpu/store"
)

func main() { cli.Main(command()) }

func command() *cobra.Command {
	var o options
	cmd := cli.Root(&cobra.Command{
		Use:   "gshare-model [flags]",
		Short: "Serve a simulated model, to try gshare with",
		Long: "gshare-model serves a model that does not exist: its kernels take the times that you specify and compute nothing, its weights are\n" +
			"bytes of the size that you specify, and its results are checksums of the inputs. Once the model is loaded, it listens on $HOST:$PORT\n" +
			"and serves the Open Inference Protocol over REST and gRPC, OpenAI's completions and embeddings, and POST / with any body. It needs a\n" +
			"GPU with its driver, or the simulated driver of hook/fake.",
		Example: "  gshare-model --name resnet50 --weights 100Mi --batch 1=5ms --batch 8=22ms\n" +
			"  gshare-model --points resnet50.json --faults\n" +
			"  PORT=9000 gshare-model --name chat --weights 2Gi --batch 1=80ms --token 20ms",
		Args:    cli.NoArgs,
		Version: release.Version(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			table, err := o.table()
			if err != nil {
				return cli.Usage(err)
			}
			inputs, err := parseInputs(o.inputs)
			if err != nil {
				return cli.Usage(err)
			}
			digest, err := o.digest(table)
			if err != nil {
				return cli.Usage(err)
			}
			if o.declare {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), declaration(table))
				return err
			}
			return o.serve(cmd.Context(), table, digest, inputs)
		},
	})
	o.register(cmd.Flags())
	return cmd
}

// serve opens the GPU, loads the model, listens, and serves until the context ends and all requests in progress are answered. digest is the
// declared digest of the weights; if it is nil, the engine computes it when it needs it.
func (o *options) serve(ctx context.Context, table model.Table, digest *store.Digest, inputs []server.Tensor) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("model", table.Name)
	device, err := cuda.Open()
	if err != nil {
		return err
	}
	engine, err := model.Open(table, o.concurrency, func() (model.Queue, error) { return device.NewQueue() })
	if err != nil {
		return err
	}
	if o.store == "" {
		o.store = os.Getenv("GSHARE_STORE") // set by the agent if it has a store for the pod
	}
	if o.store != "" {
		device, err := memory.Open()
		if err != nil {
			return err
		}
		engine.Digest = (*[sha256.Size]byte)(digest)
		engine.Store = &sharedWeights{device: device, socket: o.store, log: log}
	}
	s := server.New(server.Config{Engine: engine, Inputs: inputs, Faults: o.faults, Version: release.Version()})
	start := time.Now()
	if err := engine.Load(ctx); err != nil {
		return err
	}
	log.Info("loaded the model", "bytes", table.Weights, "seconds", time.Since(start).Seconds())
	if ctx.Err() != nil {
		return nil
	}
	// Only now, since many probes take a server that accepts connections for one that is ready.
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.address)
	if err != nil {
		return err
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // for gRPC
	h := &http.Server{Handler: s, Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(listener) }()
	log.Info("listening", "address", listener.Addr().String())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	log.Info("stopping", "grace", o.grace)
	s.Stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.grace)
	defer cancel()
	if err := h.Shutdown(grace); err != nil {
		return errors.Join(errors.New("requests were still running when the grace period ended"), h.Close())
	}
	return nil
}
