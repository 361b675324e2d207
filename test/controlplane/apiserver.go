package controlplane

import (
	"fmt"
	"strings"

	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// disabledAdmissionPlugins lists the admission plugins that rely on a controller manager, which does not run: they would refuse pods
// without a service account, keep new nodes tainted, or add finalizers that nobody removes.
var disabledAdmissionPlugins = []string{
	"ServiceAccount",
	"TaintNodesByCondition",
	"StorageObjectInUseProtection",
	"PodGroupProtection",
}

// apiServerArguments returns the command-line flags of the API server. Paths are relative to the state directory.
func apiServerArguments(port int, o Options) []string {
	return append([]string{
		"--etcd-servers=" + EtcdURL,
		"--etcd-count-metric-poll-period=0",
		"--etcd-db-metric-poll-interval=0",
		fmt.Sprintf("--secure-port=%d", port),
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback, // else a route to the outside has to exist
		"--endpoint-reconciler-type=none", // endpoints may not be loopback addresses
		"--service-cluster-ip-range=10.0.0.0/16",
		"--tls-cert-file=" + access.ServingCert,
		"--tls-private-key-file=" + access.ServingKey,
		"--token-auth-file=" + access.TokenFile,
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + access.AccountKey,
		"--service-account-signing-key-file=" + access.AccountKey,
		"--disable-admission-plugins=" + strings.Join(disabledAdmissionPlugins, ","),
		"--allow-privileged=true",
		// A local benchmark measures the scheduler, not a queue in front of the API server.
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=0",
		"--max-mutating-requests-inflight=0",
		"--http2-max-streams-per-connection=1000",
		"--event-ttl=10m",
		"--shutdown-delay-duration=0",
		fmt.Sprintf("--v=%d", o.Verbosity),
	}, o.APIServerArgs...)
}
