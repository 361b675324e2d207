//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/node/hookfile"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// runOptions holds the flags of gshare run.
type runOptions struct {
	sm, quota, vgpus, smLimit, quotaLimit int64
	memory                                string
	name, class, isolation, slice         string
	hook, socket                          string
	wait                                  bool
}

var _ = onMachine.add(runCommand)

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run --sm PERCENT --mem SIZE [flags] -- PROGRAM [ARGUMENTS]",
		Short: "Run a program on a share of this machine's GPUs",
		Long: "Request a share from the agent of this machine (gshare-node --standalone), then replace this process with the program. The\n" +
			"program keeps the terminal and receives signals itself. The share is released when the program and all GPU processes that it\n" +
			"started have ended.",
		Example: "  gshare run --sm 30 --quota 50 --mem 8Gi -- python infer.py\n" +
			"  gshare run --sm 24 --quota 40 --quota-limit 80 --mem 2Gi --wait -- ./serve --port 8000\n" +
			"  gshare run --sm 30 --sm-limit 60 --class slo --mem 4Gi -- ./serve --port 8000\n" +
			"  gshare run --sm 200 --vgpu 2 --isolation exclusive --mem 80Gi -- torchrun train.py",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("no program given: gshare run [flags] -- PROGRAM [ARGUMENTS]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.Int64Var(&o.sm, "sm", 0, "SMs in percent of a GPU, in total for all vGPUs; 200 is two GPUs")
	f.Int64Var(&o.quota, "quota", 100, "guaranteed time in percent of each window")
	f.Int64Var(&o.quotaLimit, "quota-limit", 0, "maximum time in percent of each window, while others leave it unused (default: --quota)")
	f.StringVar(&o.memory, "mem", "", "device memory, in total for all vGPUs, such as 8Gi or 512Mi")
	f.Int64Var(&o.vgpus, "vgpu", 0, "number of vGPUs, each on its own device (default: --sm / 100, rounded up)")
	f.Int64Var(&o.smLimit, "sm-limit", 0, "maximum SMs in percent of a GPU, while others leave them unused (isolation elastic; default: --sm)")
	f.StringVar(&o.class, "class", "", "priority class: slo or best-effort (default: best-effort)")
	f.StringVar(&o.isolation, "isolation", "", "isolation class: exclusive, mps or elastic (default: any that the share allows)")
	f.StringVar(&o.slice, "slice", "", "kind of slice that percentages refer to: gpu, mig, or a MIG profile such as 1g.10gb (default: gpu)")
	f.StringVar(&o.name, "name", "", "name of the run (default: the name of the program)")
	f.BoolVar(&o.wait, "wait", false, "wait until the share fits")
	f.StringVar(&o.hook, "hook", "", "path of libgshare.so (default: next to gshare)")
	addSocket(f, &o.socket)
	return cmd
}

// run requests a share from the node agent and then executes the program, which uses the share.
func (o *runOptions) run(cmd *cobra.Command, args []string) error {
	request, err := o.request(cmd, args[0])
	if err != nil {
		return cli.Usage(err)
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return cli.WithExitCode(shellCode(err), err)
	}
	hook, err := findHook(o.hook)
	if err != nil {
		return err
	}
	slow := time.AfterFunc(time.Second, func() {
		fmt.Fprintln(os.Stderr, "gshare: waiting for the agent, which moves this process into a cgroup: a busy kernel takes long for that")
	})
	grant, err := agent.New(o.socket).Run(cmd.Context(), request, func(reason *control.Refusal) {
		slow.Stop()
		fmt.Fprintln(os.Stderr, "gshare: waiting:", refusalText(reason))
	})
	slow.Stop()
	if err != nil {
		return refusalError(err)
	}
	return execProgram(cmd.Context(), program, args, hook, grant)
}

// shellCode returns the exit code of a shell for a program that cannot be started.
func shellCode(err error) int {
	if errors.Is(err, fs.ErrPermission) {
		return 126
	}
	return 127
}

// execProgram replaces this process by the program, which thereby keeps the share. It returns only on an error.
func execProgram(ctx context.Context, program string, args []string, hook string, grant *control.Grant) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	environment := grant.Environment
	loader, static := foreignLoader(program)
	if static {
		fmt.Fprintf(os.Stderr, "gshare: %s is not limited in time: it is statically linked, and cannot load %s; what it starts can (memory: %s; SMs: %s)\n",
			program, hookfile.Name, withoutHook(grant.Enforcement.Memory), grant.Enforcement.SMs)
	}
	if loader != "" {
		fmt.Fprintf(os.Stderr, "gshare: %s is not limited in time: its loader, %s, cannot load %s; nor is what it starts (memory: %s; SMs: %s)\n",
			program, loader, hookfile.Name, withoutHook(grant.Enforcement.Memory), grant.Enforcement.SMs)
	} else {
		environment = append(environment, "LD_PRELOAD="+preloadValue(hook, os.Getenv("LD_PRELOAD")))
	}
	if grant.Inherit {
		fmt.Fprintf(os.Stderr, "gshare: the identity of the share is %s (%s)\n", grant.Enforcement.Identity, strings.Join(grant.Enforcement.Missing, "; "))
		fd, err := connectTokenServer(grant.Dir)
		if err != nil {
			return err
		}
		environment = append(environment, fmt.Sprintf("GSHARE_FD=%d", fd))
	}
	if err := syscall.Exec(program, args, mergeEnviron(os.Environ(), environment)); err != nil {
		return cli.WithExitCode(126, fmt.Errorf("%s: %w", program, err))
	}
	return nil // never reached
}

// flagNames maps each field of a share to the flag of gshare run that sets it.
var flagNames = map[string]string{
	share.FieldSM: "--sm", share.FieldQuota: "--quota", share.FieldMemory: "--mem", share.FieldVGPU: "--vgpu",
	share.FieldSMLimit: "--sm-limit", share.FieldQuotaLimit: "--quota-limit", share.FieldClass: "--class",
	share.FieldIsolation: "--isolation", "name": "--name", "grace": "--grace",
}

// refusalText returns the agent's refusal in terms of the command line: the flag at fault, the reason, and shares that would fit.
func refusalText(r *control.Refusal) string {
	text := r.Reason
	if flag := flagNames[r.Field]; flag != "" {
		text = flag + ": " + text
	}
	if len(r.Fits) > 0 {
		text += "; these would fit: " + strings.Join(r.Fits, ", or ")
	}
	return text
}

// request converts the flags to the request that is sent to the agent, which validates it by the same rules as pods.
func (o *runOptions) request(cmd *cobra.Command, program string) (control.RunRequest, error) {
	r := control.RunRequest{
		Name: o.name, Quota: &o.quota, Class: o.class, Isolation: o.isolation, Slice: o.slice, Wait: o.wait,
		SM: ifSet(cmd, "sm", &o.sm), VGPUs: ifSet(cmd, "vgpu", &o.vgpus),
		SMLimit:    ifSet(cmd, "sm-limit", &o.smLimit),
		QuotaLimit: ifSet(cmd, "quota-limit", &o.quotaLimit),
	}
	if r.Name == "" {
		r.Name = filepath.Base(program)
		r.Name = r.Name[:min(len(r.Name), 63)]
	}
	if err := checkPercent(cmd, "sm", "quota", "quota-limit", "sm-limit", "vgpu"); err != nil {
		return r, err
	}
	if o.memory == "" {
		return r, errors.New("--mem is required, such as --mem 8Gi")
	}
	mib, err := parseMemory(o.memory)
	r.MemoryMiB = &mib
	return r, err
}

// checkPercent returns an error if one of the flags is set to less than 1. The agent knows what is too much.
func checkPercent(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if n, err := cmd.Flags().GetInt64(name); err == nil && n < 1 && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s: must be at least 1, got %d", name, n)
		}
	}
	return nil
}

// ifSet returns a pointer to the value of the flag if the flag is set, else nil.
func ifSet(cmd *cobra.Command, flag string, value *int64) *int64 {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return value
}

// parseMemory parses a Kubernetes quantity such as 8Gi and returns it in MiB, rounded up.
func parseMemory(text string) (int64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return 0, fmt.Errorf("--mem: invalid size %.40q: must be a quantity such as 8Gi or 512Mi", text)
	}
	mib := int64(share.MiB)
	if q.Value() < mib {
		return 0, fmt.Errorf("--mem: %s is less than 1Mi: add a unit, such as 8Gi or 512Mi", text)
	}
	return (q.Value()-1)/mib + 1, nil
}
