package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/model"
	"github.com/gshare-dev/gshare/cmd/gshare-model/internal/server"
	"github.com/gshare-dev/gshare/vgpu/profile"
)

// options holds the flags, each in a field.
type options struct {
	points, name, address, store string
	weights, workspace, declared string
	batches, inputs              []string
	sm, concurrency              int
	token, load, grace           time.Duration
	faults, declare              bool
}

func (o *options) register(f *pflag.FlagSet) {
	f.StringVar(&o.points, "points", "", "file with measurements of a model: a JSON array of points of a profile")
	f.StringVar(&o.name, "name", "", "name of the model (default: that of the measurements, else model)")
	f.StringVar(&o.weights, "weights", "", "bytes of the weights, such as 100Mi (default: the memory of the smallest measurement, else 1Mi)")
	f.StringVar(&o.workspace, "workspace", "", "bytes of the GPU that the model takes besides its weights, such as 500Mi (default: none)")
	f.DurationVar(&o.load, "load", 0, "time that a load takes at least, so that small weights stand for large ones (default: that of the copy)")
	f.StringVar(&o.store, "store", "", "socket of a model store (gshare-node store), which has the weights once for all servers (default: GSHARE_STORE, else each has its own)")
	f.BoolVar(&o.declare, "declare", false, "print the weights as pods declare them (annotation gshare.dev/weights), and end")
	f.StringVar(&o.declared, "declared", "", "the weights as the pod declares them, as --declare prints them; a store alone then verifies their digest (default: the digest is computed first, of all weights)")
	f.StringArrayVar(&o.batches, "batch", nil, "size of a batch and its time on a GPU of its own, such as 8=22ms; may be repeated")
	f.IntVar(&o.sm, "sm", 100, "SMs in percent of a GPU that the batches of --batch keep busy")
	f.DurationVar(&o.token, "token", 0, "time of each token of a text (default: that of a batch of one)")
	f.StringArrayVar(&o.inputs, "input", []string{"input:FP32:-1"}, "name, datatype and dimensions of an input after the first, which is the batch; may be repeated")
	f.IntVar(&o.concurrency, "concurrency", 1, "batches that run at once")
	f.StringVar(&o.address, "address", net.JoinHostPort(os.Getenv("HOST"), cmp.Or(os.Getenv("PORT"), "8080")), "address to listen on")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "how long requests may take to end after SIGTERM")
	f.BoolVar(&o.faults, "faults", false, "let requests ask for faults by the header "+server.FaultHeader)
}

// table returns the table of the model, from the file of measurements and the flags, which take precedence.
func (o *options) table() (model.Table, error) {
	t := model.Table{Name: "model", Version: "1", Weights: 1 << 20}
	if o.points == "" && len(o.batches) == 0 {
		return t, errors.New("--points or --batch is required: how long do batches take?")
	}
	if o.concurrency < 1 || o.concurrency > 64 {
		return t, fmt.Errorf("--concurrency: %d is outside 1 to 64", o.concurrency)
	}
	if o.points != "" {
		text, err := os.ReadFile(o.points)
		if err != nil {
			return t, fmt.Errorf("--points: %w", err)
		}
		var points []profile.Point
		if err := json.Unmarshal(text, &points); err != nil {
			return t, fmt.Errorf("--points %s: %w", o.points, err)
		}
		if t, err = model.FromPoints(points); err != nil {
			return t, fmt.Errorf("--points %s: %w", o.points, err)
		}
	}
	t.Name, t.Token, t.Load = cmp.Or(o.name, t.Name), o.token, o.load
	for flag, size := range map[string]struct {
		text  string
		bytes *int
	}{"--weights": {o.weights, &t.Weights}, "--workspace": {o.workspace, &t.Workspace}} {
		if size.text == "" {
			continue
		}
		q, err := resource.ParseQuantity(size.text)
		if err != nil {
			return t, fmt.Errorf("%s: %w", flag, err)
		}
		*size.bytes = int(q.Value())
	}
	if len(o.batches) > 0 {
		var err error
		if t.Batches, err = parseBatches(o.batches, 10*o.sm); err != nil {
			return t, fmt.Errorf("--batch: %w", err)
		}
	}
	return t, t.Validate()
}

// parseBatches parses sizes with times and returns them in order.
func parseBatches(texts []string, sm int) ([]model.Batch, error) {
	var batches []model.Batch
	for _, text := range texts {
		size, duration, found := strings.Cut(text, "=")
		n, err := strconv.Atoi(size)
		if err != nil || !found {
			return nil, fmt.Errorf("%q is no size with a time, such as 8=22ms", text)
		}
		d, err := time.ParseDuration(duration)
		if err != nil {
			return nil, err
		}
		batches = append(batches, model.Batch{Size: n, Time: d, SM: sm})
	}
	slices.SortFunc(batches, func(a, b model.Batch) int { return cmp.Compare(a.Size, b.Size) })
	return batches, nil
}

// parseInputs parses inputs such as "image:FP32:3,224,224".
func parseInputs(texts []string) ([]server.Tensor, error) {
	var inputs []server.Tensor
	for _, text := range texts {
		parts := strings.Split(text, ":")
		if len(parts) != 3 || parts[0] == "" {
			return nil, fmt.Errorf("--input: %q is no name, datatype and dimensions, such as image:FP32:3,224,224", text)
		}
		in := server.Tensor{Name: parts[0], Datatype: parts[1]}
		if !server.KnownDatatype(in.Datatype) {
			return nil, fmt.Errorf("--input: %q is no datatype", in.Datatype)
		}
		for d := range strings.SplitSeq(parts[2], ",") {
			n, err := strconv.ParseInt(d, 10, 64)
			if err != nil || n < -1 || n == 0 {
				return nil, fmt.Errorf("--input: %q is no dimension", d)
			}
			in.Shape = append(in.Shape, n)
		}
		if slices.ContainsFunc(inputs, func(other server.Tensor) bool { return other.Name == in.Name }) {
			return nil, fmt.Errorf("--input: %q is given twice", in.Name)
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}
