// Package audit checks a cluster independently of the scheduler: from the Nodes and Pods that the API server shows, and
// nothing else, it derives what every slice holds and reports which rules are violated.
//
// It shares the contracts of package kube with the rest of gshare, but no rule of package packing. Where a set of shares
// has to fit together, it requires a proof, a slot table or a packing of rectangles, and verifies that proof itself. So
// its result is right even if the code that computed the proof is wrong.
//
// [Check] checks bound pods. [Report.Admissible] then lists the nodes that could take a pending pod, which distinguishes
// a pod that fits nowhere from one that the scheduler has missed.
//
// Pod affinity, topology spread, volumes, host ports and nominated pods are not checked.
package audit
