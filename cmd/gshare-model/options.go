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
	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// options holds the flags. It has many fields: one for each flag.
type options struct {
	points, name, address, store string
	weights, workspace, declared string
	batches, inputs              []string
	sm, concurrency              int
	token, load, grace           time.Duration
	faults, declare              bool
}

func (o *options) register(f *pflag.FlagSet) {
	f.StringVar(&o.points, "points", "", "file with the measurements of a model: a JSON array of profile points")
	f.StringVar(&o.name, "name", "", "name of the model (default: the name in the measurements, else model)")
	f.StringVar(&o.weights, "weights", "", "size of the weights, such as 100Mi (default: the memory of the smallest measurement, else 1Mi)")
	f.StringVar(&o.workspace, "workspace", "", "GPU memory that the model takes in addition to its weights, such as 500Mi (default: none)")
	f.DurationVar(&o.load, "load", 0, "minimum time to load the weights, so that small weights can stand for large ones (default: the time of the copy)")
	f.StringVar(&o.store, "store", "", "socket of a model store (gshare-node store), which holds one copy of the weights for all servers (default: $GSHARE_STORE, else each server has its own copy)")
	f.BoolVar(&o.declare, "declare", false, "print the weights as pods declare them (annotation gshare.dev/weights) and exit")
	f.StringVar(&o.declared, "declared", "", "weights as the pod declares them and --declare prints them; only the store then verifies their digest (default: compute the digest of all weights first)")
	f.StringArrayVar(&o.batches, "batch", nil, "batch size and its time alone on a GPU, such as 8=22ms; can be repeated")
	f.IntVar(&o.sm, "sm", 100, "SMs that the batches of --batch keep busy, in percent of a GPU")
	f.DurationVar(&o.token, "token", 0, "time for each token of a text (default: the time of a batch of one)")
	f.StringArrayVar(&o.inputs, "input", []string{"input:FP32:-1"}, "name, datatype and dimensions of an input, without the batch dimension; can be repeated")
	f.IntVar(&o.concurrency, "concurrency", 1, "number of batches that run at the same time")
	f.StringVar(&o.address, "address", net.JoinHostPort(os.Getenv("HOST"), cmp.Or(os.Getenv("PORT"), "8080")), "address to listen on")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "time for running requests to finish after SIGTERM")
	f.BoolVar(&o.faults, "faults", false, "let requests ask for faults with the header "+server.FaultHeader)
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
