package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

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
	if o.memory == "" {
		return r, errors.New("--mem is required, such as --mem 8Gi")
	}
	mib, err := parseMemory(o.memory)
	r.MemoryMiB = &mib
	return r, err
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
