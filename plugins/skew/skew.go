// Package skew lets gshare-scheduler run on clusters of an older minor version of Kubernetes than the one that it is built with.
//
// kube-scheduler must not be newer than the API server (Kubernetes' version skew policy). It watches kinds that an older API server does not have, or
// that its role may not read there, and waits for them for ever. The flag --emulated-version turns off the features of later versions.
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

// Flag returns the flag that keeps kube-scheduler from using anything that an API server of the given version does not know. It returns "" if that
// version is not older than kube-scheduler's, or cannot be parsed.
func Flag(server version.Info) string {
	major, minor, _ := strings.Cut(baseversion.DefaultKubeBinaryVersion, ".")
	newest, _ := strconv.Atoi(minor)                               // cannot fail: it is a constant
	has, err := strconv.Atoi(strings.TrimRight(server.Minor, "+")) // some providers add a plus sign
	if err != nil || server.Major != major || has >= newest {
		return ""
	}
	return flag + "=" + major + "." + strconv.Itoa(has)
}

// timeout bounds the request for the version of the API server.
const timeout = 10 * time.Second

// Arguments adds Flag to the arguments of kube-scheduler in a pod, unless they contain it already. If the API server does not answer, it returns them
// unchanged: should the server turn out to be older, the scheduler does not become ready, the kubelet restarts it, and it asks again.
func Arguments(args []string) []string {
	config, err := rest.InClusterConfig()
	if err != nil || slices.ContainsFunc(args, func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") }) {
		return args // not in a pod, or the user chose the version
	}
	config.Timeout = timeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return args // kube-scheduler will report what is wrong
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
