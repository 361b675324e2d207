#!/usr/bin/env bash
# Tests gshare with published programs and clients: the tests in modules of their own, whose dependencies are not gshare's, and other autoscalers
# on the test cluster. They need the network the first time, and the first builds of KEDA and KServe take minutes. The cluster needs root, and
# Debian's package of Prometheus.
set -euo pipefail
cd "$(dirname "$0")/.."
for module in test/*/go.mod cmd/*/go.mod test/controlplane/kubernetes/go.mod hack/proxies/go.mod hack/release/go.mod; do
  (cd "$(dirname "$module")" && go test -count=1 ./...)
done

if [ "$(id -u)" = 0 ]; then
  fetched=$PWD/bin/ecosystem
  if [ ! -x "$fetched/usr/bin/prometheus" ]; then
    mkdir -p "$fetched"
    (cd "$fetched" && apt-get download prometheus && dpkg -x prometheus_*.deb .)
  fi
  PATH=$fetched/usr/bin:$PATH go test -count=1 -timeout 30m -v -run '^TestServingAutoscalers$' ./test/cluster -ecosystem
else
  echo "TestServingAutoscalers left out: the test cluster needs root" >&2
fi
