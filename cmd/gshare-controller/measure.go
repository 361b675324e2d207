package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/profiles"
)

// measureCommand returns the command that the client pods of trials run. profiles.clientCommand contains its name.
func measureCommand() *cobra.Command {
	var result string
	cmd := &cobra.Command{
		Use:   "measure",
		Short: "Send the requests of one trial of a GPUProfile",
		Long: "gshare-controller creates pods that run measure to send the requests of a GPUProfile. measure needs no API server: the environment\n" +
			"variable " + profiles.JobVariable + " says what to measure, and the result is written to a file, by default the termination message of\n" +
			"the container.",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return measure(cmd.Context(), os.Getenv(profiles.JobVariable), result)
		},
	}
	cmd.Flags().StringVar(&result, "result", "/dev/termination-log", "file to write the result to")
	return cmd
}

// measure runs the job that text describes and writes its outcome to a file.
func measure(ctx context.Context, text, result string) error {
	job, err := profiler.DecodeJob([]byte(text))
	if err != nil {
		return cli.Usage(fmt.Errorf("%s: %w", profiles.JobVariable, err))
	}
	outcome, err := job.Run(ctx)
	if err != nil {
		return err
	}
	written, err := outcome.Encode()
	if err != nil {
		return err
	}
	return os.WriteFile(result, written, 0o644)
}

// ownImage reads, and then remembers, the image of the pod that this process runs in.
type ownImage struct {
	clients         kubernetes.Interface
	namespace, name string // of the pod; empty if the process does not run in one

	mu    sync.Mutex
	known string
}

// get returns the image of the pod's first container, or the error of the API server.
func (o *ownImage) get(ctx context.Context) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known != "" {
		return o.known, nil
	}
	if o.name == "" {
		return "", errors.New("this process runs in no pod (POD_NAMESPACE, POD_NAME): --profile-image says which image has gshare-controller")
	}
	pod, err := o.clients.CoreV1().Pods(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	o.known = pod.Spec.Containers[0].Image
	return o.known, nil
}
