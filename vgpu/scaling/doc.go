// Package scaling decides how many instances of a function there are, in which configurations, and how ready each is.
//
// FaST-GShare's Alg. 1 says which configurations to add and which instances to give up; Dilu's lazy window says when, so
// that replicas do not flap (F10): short bursts are left to vertical scaling inside the shares that are there (DI-07).
// Giving up is gradual, through the states of FluidFaaS: an instance becomes Shared, then Warm, and is deleted last, and
// until then it is the first to come back.
//
// A Scaler is told the load of every second and answers with decisions for others to carry out. It keeps nothing: the
// State goes in and comes out, so a restarted controller continues from a stored one, and a simulator gets the same
// answers as a cluster.
package scaling
