package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// runOptions are the flags of gshare run.
type runOptions struct {
	sm, quota, vgpus, smLimit, quotaLimit int64
	memory                                string
	name, class, isolation, slice         string
	hook, socket                          string
	wait                                  bool
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run --sm PERCENT --mem SIZE [flags] -- PROGRAM [ARGUMENTS]",
		Short: "Run a program on a share of a GPU of this machine",
		Long: "run asks the agent of this machine (gshare-node --standalone) for a share and becomes the program: signals,\n" +
			"exit code and terminal are the program's. The share is given back when the program has ended, and with it all\n" +
			"processes that it started on the GPU.",
		Example: "  gshare run --sm 30 --quota 50 --mem 8Gi -- python infer.py\n" +
			"  gshare run --sm 24 --quota 40 --quota-limit 80 --mem 2Gi --wait -- ./serve --port 8000\n" +
			"  gshare run --sm 30 --sm-limit 60 --class slo --mem 4Gi -- ./serve --port 8000\n" +
			"  gshare run --sm 200 --vgpu 2 --isolation exclusive --mem 80Gi -- torchrun train.py",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("which program? It comes as an argument after the flags")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.Int64Var(&o.sm, "sm", 0, "SMs in percent points of a GPU, total of all vGPUs: 200 is two GPUs")
	f.Int64Var(&o.quota, "quota", 100, "percent of every time window, guaranteed")
	f.Int64Var(&o.quotaLimit, "quota-limit", 0, "percent of the window that may be used while others leave it (default: the quota)")
	f.StringVar(&o.memory, "mem", "", "device memory, total of all vGPUs: 8Gi, 512Mi")
	f.Int64Var(&o.vgpus, "vgpu", 0, "number of vGPUs, on different devices (default: sm / 100, rounded up)")
	f.Int64Var(&o.smLimit, "sm-limit", 0, "SMs that may be used while others leave them, percent of a GPU: class elastic (default: the SMs)")
	f.StringVar(&o.class, "class", "", "slo or best-effort (default best-effort)")
	f.StringVar(&o.isolation, "isolation", "", "exclusive, mps or elastic (default: what satisfies the share)")
	f.StringVar(&o.slice, "slice", "", "gpu, mig, or a MIG profile such as 1g.10gb: amounts are of that (default gpu)")
	f.StringVar(&o.name, "name", "", "name for gshare ps (default: the program's)")
	f.BoolVar(&o.wait, "wait", false, "wait for room")
	f.StringVar(&o.hook, "hook", "", "libgshare.so (default: beside gshare)")
	f.StringVar(&o.socket, "socket", "", "control socket of the agent (default: the user's own agent, else the machine's)")
	return cmd
}

func (o *runOptions) run(cmd *cobra.Command, args []string) error {
	request, err := o.request(cmd, args[0])
	if err != nil {
		return cli.Usage(err)
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return cli.WithExitCode(127, err)
	}
	hook, err := findHook(o.hook)
	if err != nil {
		return err
	}
	grant, err := agent.New(o.socket).Run(cmd.Context(), request, func(why *control.Refusal) {
		fmt.Fprintln(os.Stderr, "gshare: waiting:", explain(*why))
	})
	if refused := (*agent.Refused)(nil); errors.As(err, &refused) {
		return errors.New(explain(refused.Refusal))
	}
	if err != nil {
		return err
	}
	return become(cmd.Context(), program, args, hook, grant)
}

// become replaces this process by the program, which thereby is the one that has the share.
func become(ctx context.Context, program string, args []string, hook string, grant *control.Grant) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	environment := append(grant.Environment, "LD_PRELOAD="+preload(hook, os.Getenv("LD_PRELOAD")))
	if grant.Inherit {
		fmt.Fprintf(os.Stderr, "gshare: the share is %s (%s)\n", grant.Enforcement.Identity, strings.Join(grant.Enforcement.Missing, "; "))
		fd, err := inheritable(grant.Dir)
		if err != nil {
			return err
		}
		environment = append(environment, fmt.Sprintf("GSHARE_FD=%d", fd))
	}
	if err := syscall.Exec(program, args, merge(os.Environ(), environment)); err != nil {
		return cli.WithExitCode(126, fmt.Errorf("%s: %w", program, err))
	}
	return nil // never reached
}

// flagOf names the flag in which a part of a share is written.
var flagOf = map[string]string{
	share.FieldSM: "--sm", share.FieldQuota: "--quota", share.FieldMemory: "--mem", share.FieldVGPU: "--vgpu",
	share.FieldSMLimit: "--sm-limit", share.FieldQuotaLimit: "--quota-limit", share.FieldClass: "--class",
	share.FieldIsolation: "--isolation", "name": "--name",
}

// explain puts a refusal into the words of the command line.
func explain(r control.Refusal) string {
	text := r.Reason
	if flag := flagOf[r.Field]; flag != "" {
		text = flag + ": " + text
	}
	if len(r.Fits) > 0 {
		text += "; what would fit: " + strings.Join(r.Fits, ", or ")
	}
	return text
}
