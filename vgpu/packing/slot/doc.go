// Package slot decides whether shares can take turns on one slice, and writes the table of turns.
//
// A slice limits two things only: at any moment the SMs of the shares that run add up to at most the whole, and a share does not
// run twice at the same time. Time can be cut into pieces, and SMs are counted, not placed. So a set of shares fits if and only
// if a linear program over configurations (sets of shares that may run together) has a solution within the window
// (docs/packing.md):
//
//	minimise the sum of x(C), where for every share i the x(C) of the configurations that hold i add up to its quota.
//
// The minimum is called the length. Switching between configurations costs time, which is why there is a reserve r. Shares that
// ask for the whole of every window run in all configurations, so their SMs are subtracted first; the others fit if their length
// on the remaining SMs is at most 1 - r. One configuration alone never switches and needs no reserve.
//
// The result depends on the multiset of shares only: not on their order, on earlier calls or on the machine. Scheduler and node
// agent therefore compute the same table without exchanging it.
//
// There are two limitations. At most 64 shares with less than full quota can take turns; larger sets fit only if all run at
// once. And a length above the limit by less than 1e-10 of a window may still count as within it.
package slot
