// Package rectangle packs shares as quota x SM boxes on a slice: FaST-GShare's maximal rectangles (Algorithm 2), corrected.
//
// A slice is 1000 wide (the window) and 1000 high (the SMs). Memory is checked by the caller first
// (F25). That areas sum to less than a slice is not enough: three shares of
// 60 % SM and 40 % quota have 72 % of the area and do not fit (F31).
//
// A packing proves that a cyclic window exists in which every share runs at its position. It is not the schedule: the
// paper's token order never looks at X and may miss requests that the packing serves (F30).
//
// There are two ways to use it. [Arrange] is a function of the set of boxes alone, so that scheduler and agent need not exchange
// rectangles: they recompute them. [List] is the paper's own algorithm with its keep-restructure rule, whose result
// depends on the history. [ListOf] joins them: it computes the [Waste] of one more box on a slice that Arrange has packed.
package rectangle
