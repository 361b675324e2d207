// Package faults tests gshare's scheduler end to end against bad input and faults: requests that make no sense, inventories
// that cannot be read, schedulers killed in mid-burst, API requests that fail, hang or are answered wrongly, nodes and
// devices that come and go, and preemption. The control plane is real: etcd, kube-apiserver and gshare-scheduler run as
// child processes, and nodes are simulated.
//
// All tests share one control plane, one after the other. Each begins with an empty cluster and ends with an audit of the
// API server's objects: no rule is broken, and no pod waits that should run.
package faults
