// Package standalone shares the GPUs of one machine without Kubernetes: gshare run asks it for a share, and it admits by
// the scheduler's rules, runs the same token server and keeps the share until its processes have ended.
//
// The load of a device is derived from the runs on it. Each run has a directory with the record that a new agent restores it from.
package standalone
