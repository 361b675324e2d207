package kube

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
)

// AnnotationTruth is written by the node agent on the pods of its node: what really holds each container to its share.
const AnnotationTruth = "gshare.dev/enforced"

// Truth says by what the shares of a pod are enforced. It is a report: nothing is decided by it.
type Truth struct {
	Containers []ContainerTruth
}

// ContainerTruth is the report on one container.
type ContainerTruth struct {
	Name     string    `json:"name"`
	Since    time.Time `json:"since"`
	Memory   string    `json:"memory"`   // what bounds device memory
	SMs      string    `json:"sms"`      // what bounds the SMs in use
	Time     string    `json:"time"`     // what bounds the time on the device
	Identity string    `json:"identity"` // how its processes are told from others
	Health   string    `json:"health,omitempty"`
	Missing  []string  `json:"missing,omitempty"` // what a container could still do, or what does not work
}

type truthText struct {
	Version    int              `json:"v"`
	Containers []ContainerTruth `json:"containers"`
}

// EncodeTruth writes a report.
func EncodeTruth(t Truth) (string, error) {
	text, err := json.Marshal(truthText{formatVersion, t.Containers})
	return string(text), err
}

// TruthOf reads the report on a pod. Errors wrap ErrMalformed.
func TruthOf(pod *v1.Pod) (t Truth, present bool, err error) {
	text, present := pod.Annotations[AnnotationTruth]
	if !present {
		return Truth{}, false, nil
	}
	var read truthText
	if err := decodeStrict(text, &read); err != nil {
		return Truth{}, true, malformed("enforced", "%v", err)
	}
	if read.Version != formatVersion {
		return Truth{}, true, malformed("enforced", "version %d is not %d", read.Version, formatVersion)
	}
	return Truth{read.Containers}, true, nil
}
