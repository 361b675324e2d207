// Package scaling decides how many instances of a function run, in which configurations, and in which residency each is.
//
// FaST-GShare's Algorithm 1 chooses the configurations to add and the instances to remove; Dilu's lazy window chooses the moment,
// so that replicas do not flap (F10): short bursts are left to vertical scaling inside the existing shares (DI-07).
// Instances are removed gradually, through the states of FluidFaaS: an instance becomes Shared, then Warm, and is deleted last.
// Until it is deleted it is the first to be promoted again.
//
// A Scaler gets the load of every second and returns decisions for its caller to carry out. It has no state of its own: the
// State is an argument and a result, so a restarted controller continues from a stored one, and a simulator gets the same
// decisions as a cluster.
package scaling
