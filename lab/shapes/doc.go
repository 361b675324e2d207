// Package shapes measures how many GPUs pods of mixed SM shares and quotas need, under published packings and under gshare's.
//
// Pods come one after another and stay where they are put ([Fill]), or come and go on a fleet that is too small ([Churn]).
// No packing needs fewer GPUs than [LowerBound]. docs/packing.md defines families and methods.
package shapes
