// Package skew lets gshare-scheduler run on clusters of an older minor version of Kubernetes than the one that it is built with.
//
// kube-scheduler must not be newer than the API server (Kubernetes' version skew policy): it watches kinds that an older API server does not have, or
// whose reading its role does not allow there, and waits for them without end. The flag --emulated-version turns the features of later versions off.
package skew

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	baseversion "k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

const flag = "--emulated-version"

// Flag returns the flag with which kube-scheduler does nothing that an API server of this version does not know, or "" if that version is not older,
// or is not known.
func Flag(server version.Info) string {
	major, minor, _ := strings.Cut(baseversion.DefaultKubeBinaryVersion, ".")
	newest, _ := strconv.Atoi(minor)                               // a constant
	has, err := strconv.Atoi(strings.TrimRight(server.Minor, "+")) // some providers add a plus sign
	if err != nil || server.Major != major || has >= newest {
		return ""
	}
	return flag + "=" + major + "." + strconv.Itoa(has)
}

// timeout is for the question of which version the API server is.
const timeout = 10 * time.Second

// Arguments adds Flag to the arguments of kube-scheduler in a pod, unless they have it. Where the API server does not answer, they stay as they are:
// if it is older, the scheduler does not become ready, and asks again when the kubelet has restarted it.
func Arguments(args []string) []string {
	config, err := rest.InClusterConfig()
	if err != nil || slices.ContainsFunc(args, func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") }) {
		return args // not in a pod
	}
	config.Timeout = timeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return args // kube-scheduler says what is wrong
	}
	server, err := client.Discovery().ServerVersion()
	if err != nil {
		klog.Background().Error(err, "failed to read the API server's version")
		return args
	}
	more := Flag(*server)
	if more == "" {
		return args
	}
	klog.Background().Info("API server is older", "version", server.GitVersion, "flag", more)
	return append(slices.Clip(args), more)
}
