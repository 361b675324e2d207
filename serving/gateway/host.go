package gateway

import (
	"cmp"
	"net"
	"strings"
)

func compareNames(a, b FunctionName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// defaultNamespace is the namespace of a function whose host names none.
const defaultNamespace = "default"

// parseHost returns the function that a host names: NAME, NAME.NAMESPACE, or NAME.NAMESPACE.svc followed by any domain, with or without a port. If an
// ExternalName Service leads to the gateway, the host is that of the Service.
func parseHost(host string) FunctionName {
	if strings.Contains(host, ":") {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	name, rest, _ := strings.Cut(host, ".")
	namespace, domain, more := strings.Cut(rest, ".")
	if more && domain != "svc" && !strings.HasPrefix(domain, "svc.") {
		return FunctionName{Name: host} // the host of another domain: no function has such a name
	}
	return FunctionName{Namespace: cmp.Or(namespace, defaultNamespace), Name: name}
}
