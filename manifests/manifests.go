// Package manifests holds the files that a cluster is set up with, for the programs that set one up themselves.
package manifests

import _ "embed" // for the files below

// SchedulerConfig is the KubeSchedulerConfiguration of gshare-scheduler.
//
//go:embed scheduler/config.yaml
var SchedulerConfig []byte
