// Package shapes measures how many GPUs pods of mixed SM shares and quotas need, under published packings and under gshare's.
//
// Pods come one after another and stay where they are put ([Fill]), or come and go on a fleet that is too small ([Churn]).
// What a fleet of any packing must take at least is [LowerBound]. Families and methods are those of facts/packing.md 8.
package shapes
