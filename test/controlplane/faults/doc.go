// Package faults tests gshare's scheduler end to end against bad input and faults: nonsensical requests, unreadable
// inventories, schedulers killed in mid-burst, API requests that fail, hang or get wrong responses, nodes and devices that
// come and go, and preemption. The control plane is real: etcd, kube-apiserver and gshare-scheduler run as child processes,
// and nodes are simulated.
//
// All tests share one control plane, and run one after another. Each begins with an empty cluster and ends with an audit of
// the API server's objects: no rule is violated, and no pod is pending that could be placed.
package faults
