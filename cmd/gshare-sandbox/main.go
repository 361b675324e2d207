// Command gshare-sandbox runs gshare on a real Kubernetes control plane with simulated nodes, on one machine.
package main

func main() {}
