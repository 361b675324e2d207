// Package standalone shares the GPUs of one machine without Kubernetes: gshare run asks it for a share, and it admits by
// the scheduler's rules, runs the same token server and keeps the share until its processes have ended (DESIGN 6).
//
// What is on a device is derived from the runs. Each run has a directory with what a new agent needs to take it over.
package standalone
