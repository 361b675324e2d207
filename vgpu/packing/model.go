// Package packing decides which shares fit together on a slice, which slices of a node serve a pod, and which node is the
// best one for it. It is exact about admission and explicit about preference; it reads no clock and does no I/O.
package packing

// Model says how shares on one slice fit together. A slice keeps one model until it is empty.
type Model string

// Slots counts SMs and splits time: exact, by the configuration LP. Rectangles is FaST's quota x SM geometry.
const (
	Slots      Model = "slots"
	Rectangles Model = "rectangles"
)
