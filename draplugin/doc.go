// Package draplugin implements a driver for Dynamic Resource Allocation. It offers the node's GPUs as devices that many resource claims
// can share, and converts what the scheduler allocates to shares. The Node behind it grants and enforces them.
package draplugin
