// Package audit checks a cluster independently of the scheduler: from the Nodes and Pods that the API server shows, and
// nothing else, it derives what every slice holds and reports which rules are broken.
//
// It shares the contracts of package kube with the rest of gshare, but no rule of package packing. Where a set of shares
// has to fit together, it does not believe a verdict: it asks for a certificate, a table of turns or a packing, and
// verifies that itself. So it can say that what is there is sound even if the code that made the certificate is wrong.
//
// [Check] judges what is bound. [Report.Admissible] then says where a pod that waits could go, which tells a pod that no
// node has room for from one that the scheduler has missed.
//
// Not looked at: what pods ask of other pods (pod affinity, spread), volumes, host ports, and pods only nominated.
package audit
