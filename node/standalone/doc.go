// Package standalone shares the GPUs of one machine without Kubernetes. gshare run asks it for a share; it admits the share by the
// scheduler's rules, runs the same token server, and keeps the share until the run's processes have ended.
//
// The load of a device is derived from the runs on it. Each run has a directory with a record, from which a new agent restores it.
package standalone
