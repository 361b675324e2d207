package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/node/store"
	"github.com/gshare-dev/gshare/node/store/client"
	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// storeOptions are the flags of gshare-node store.
type storeOptions struct{ socket, namespace, capacity, slice, grants, control string }

func storeCommand() *cobra.Command {
	var o storeOptions
	cmd := &cobra.Command{
		Use:   "store --socket FILE --namespace NAME {--capacity BYTES | --slice ID --grants DIRECTORY}",
		Short: "Keep one copy of model weights on a slice for all pods of a namespace",
		Long: "gshare-node store keeps weights in the memory of the first GPU that it sees. Programs of one namespace store weights once, by their\n" +
			"digest, and map them read-only. The store does not depend on the agent while it runs, and what programs have mapped outlives the\n" +
			"store.\n\n" +
			"With --slice and --grants, programs are identified by their pod, which must have a share of the slice according to the agent's\n" +
			"records. The store then holds the weights that pods of the namespace declare, each up to the declared size. Without these flags,\n" +
			"programs are identified by their user, and the namespace is the user ID.\n\n" +
			"The agent starts stores by itself where kubernetes.modelStore is set.",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serveStore(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.socket, "socket", "", "socket on which programs ask for weights")
	f.StringVar(&o.namespace, "namespace", "", "namespace whose programs may ask for weights")
	f.StringVar(&o.capacity, "capacity", "", "device memory for all weights together, such as 8Gi")
	f.StringVar(&o.slice, "slice", "", "ID of the slice whose memory holds the weights")
	f.StringVar(&o.grants, "grants", "", "directory of the agent's records, such as /run/gshare/grants")
	f.StringVar(&o.control, "control", "", "directory that only the agent can access, through which it finds the store again")
	_ = f.MarkHidden("control")
	cmd.AddCommand(verifyCommand(), digestCommand())
	return cmd
}

// writeLimit is how long a program may take to store weights, long enough for 100 GB from a disk of 60 MB/s.
const writeLimit = 30 * time.Minute

// digestLimit is how long computing the digest of a GiB may take: enough for a process that shares its processor with ten others and has no
// instructions for SHA-256.
const digestLimit = time.Minute

func serveStore(ctx context.Context, o storeOptions) error {
	if o.socket == "" || o.namespace == "" {
		return cli.Usage(errors.New("--socket and --namespace are needed"))
	}
	if (o.slice == "") != (o.grants == "") {
		return cli.Usage(errors.New("--slice and --grants belong together"))
	}
	options := store.Options{Namespace: o.namespace, Identify: store.Users, Digest: store.Helper("/proc/self/exe", "store", "digest")}
	switch {
	case o.slice != "" && o.capacity != "":
		return cli.Usage(errors.New("--capacity and --grants exclude each other: what pods declare is the capacity"))
	case o.slice != "":
		options.Identify, options.Declared = store.Grants(o.grants, o.slice), store.Declared(o.grants, o.slice, o.namespace)
	default:
		capacity, err := resource.ParseQuantity(o.capacity)
		if err != nil || capacity.Value() <= 0 {
			return cli.Usage(fmt.Errorf("--capacity %q: want a positive number of bytes, such as 8Gi", o.capacity))
		}
		options.Capacity = share.Bytes(capacity.Value())
	}
	var output io.Writer = os.Stderr
	if o.control != "" {
		options.Held = store.Control(o.control).Held
		if err := store.Control(o.control).Hold(); err != nil {
			return err
		}
		file, err := openLog(store.Control(o.control).LogFile())
		if err != nil {
			return err
		}
		defer file.Close()
		output = file
	}
	device, err := cuda.Open()
	if err != nil {
		return err
	}
	options.WriteLimit, options.DigestLimit = writeLimit, digestLimit
	options.Memory, options.Log = device, slog.New(slog.NewTextHandler(output, nil))
	return listenStore(ctx, o, store.New(options))
}

// listenStore serves programs until the context ends. If the agent has started the store, it serves the agent, too.
func listenStore(ctx context.Context, o storeOptions, server *store.Server) error {
	listener, err := unixsocket.Listen("unixpacket", o.socket, 0o666, unixsocket.NewLimiter()) // anybody may connect: the store identifies its clients
	if err != nil {
		return err
	}
	defer listener.Close()
	if o.control != "" {
		control, err := store.Control(o.control).Listen()
		if err != nil {
			return err
		}
		defer control.Close()
		go server.ServeControl(control)
	}
	server.Log.Info("ready", "socket", o.socket, "namespace", o.namespace)
	return server.Serve(ctx, listener)
}

// maxLog is the largest size of a store's log, in bytes. It is limited because programs in pods can make the store write to it.
const maxLog = 1 << 20

// boundedLog is the log of a store that the agent has started. It is emptied when it is full.
type boundedLog struct {
	*os.File
	mu   sync.Mutex
	size int
}

func openLog(name string) (*boundedLog, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &boundedLog{File: file, size: int(info.Size())}, nil
}

func (l *boundedLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+len(text) > maxLog {
		if err := l.Truncate(0); err != nil {
			return 0, err
		}
		l.size = 0
	}
	n, err := l.File.Write(text)
	l.size += n
	return n, err
}

// digestCommand returns the command that the store runs as a child process to verify weights.
func digestCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "digest MEMORY-BYTES WEIGHTS-BYTES",
		Short:  "Print the digest of the memory that the store has passed on",
		Hidden: true,
		Args:   cli.Exactly(2),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			digest, err := store.RunHelper(arguments)
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), digest)
			}
			return err
		},
	}
}

func verifyCommand() *cobra.Command {
	var socket, digest, layout string
	cmd := &cobra.Command{
		Use:   "verify --socket FILE --weights sha256:DIGEST [--layout NAME]",
		Short: "Check that the weights in a store are unchanged and cannot be written",
		Long: "gshare-node store verify reads weights as a program of the namespace does. It fails if their digest is not the one that they were\n" +
			"stored under, or if it can write them: then any program of the namespace can, by mapping them for writing.",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := rules.ParseDigest(digest)
			if err != nil {
				return cli.Usage(fmt.Errorf("--weights: %w", err))
			}
			r, err := verify(cmd.Context(), socket, rules.Key{Digest: d, Layout: layout})
			if err != nil {
				return err
			}
			if r.Found != d {
				return fmt.Errorf("the weights have been changed: their digest is %v", r.Found)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%d bytes are unchanged\n", r.Bytes); err != nil {
				return err
			}
			if r.Writable {
				return errors.New("this program could write the weights, and so can others of the namespace")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "socket of the store")
	cmd.Flags().StringVar(&digest, "weights", "", "digest of the weights")
	cmd.Flags().StringVar(&layout, "layout", "", "layout of the weights, if they were stored with one")
	return cmd
}

func verify(ctx context.Context, socket string, k rules.Key) (client.Report, error) {
	device, err := cuda.Open()
	if err != nil {
		return client.Report{}, err
	}
	c, err := client.Dial(ctx, socket)
	if err != nil {
		return client.Report{}, err
	}
	defer c.Close()
	return c.Verify(device, k)
}
