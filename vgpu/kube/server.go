package kube

import v1 "k8s.io/api/core/v1"

// The port on which the server in a pod must listen that gshare sends requests to or parks: the port of its first container with this name or, if
// there is none, this number.
const (
	ServerPortName    = "serving"
	DefaultServerPort = 8080
)

// ServerPort returns the port on which the server in a pod must listen.
func ServerPort(s *v1.PodSpec) int32 {
	if len(s.Containers) > 0 {
		for _, p := range s.Containers[0].Ports {
			if p.Name == ServerPortName {
				return p.ContainerPort
			}
		}
	}
	return DefaultServerPort
}
