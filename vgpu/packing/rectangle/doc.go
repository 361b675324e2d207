// Package rectangle packs shares as quota x SM boxes on a slice: FaST-GShare's maximal rectangles (Algorithm 2), corrected.
//
// A slice is 1000 wide (the window) and 1000 high (the SMs). The caller checks memory first (F25). It is not enough that the
// areas add up to less than a slice: three shares of 60 % SM and 40 % quota have 72 % of the area and do not fit (F31).
//
// A packing proves that a cyclic window exists in which every share runs at its position. It is not the schedule: the paper's
// token order never looks at X and may fail to serve requests that the packing serves (F30).
//
// There are two ways to use it. The result of [Arrange] depends on the set of boxes alone, so that scheduler and agent need not
// exchange rectangles: they recompute them. [List] is the paper's own algorithm with its keep-restructure rule, whose result
// depends on the history. [ListOf] joins the two: it makes a List from a packing of Arrange, and so the [Waste] of one more box
// can be computed.
package rectangle
