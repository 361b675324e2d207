// Package audit checks a cluster independently of the scheduler: from the Nodes and Pods that the API server shows, and
// nothing else, it derives what every slice holds and reports which rules are violated.
//
// It shares the contracts of package kube with the rest of gshare, but no rule of package packing. Where a set of shares
// must fit together, it obtains a proof, which is a slot table or a packing of rectangles, and verifies the proof
// itself. Its result is therefore right even if the code that computed the proof is wrong.
//
// [Check] checks bound pods. [Report.Admissible] then lists the nodes that could take a pending pod, which distinguishes
// a pod that fits nowhere from one that the scheduler has missed.
//
// Pod affinity, topology spread, volumes, host ports and nominated pods are not checked.
package audit
