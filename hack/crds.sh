#!/usr/bin/env bash
# Writes what is generated from the types in serving/api: the CustomResourceDefinitions of manifests/serving, and the DeepCopy methods.
# hack/crds.sh [check]: check changes nothing, and fails if they differ from what it would write.
set -euo pipefail
cd "$(dirname "$0")/.."

types=serving/api/v1alpha1
copies=zz_generated.deepcopy.go
definitions=manifests/serving code=$types
if [ "${1:-}" = check ]; then
  definitions=$(mktemp -d) code=$(mktemp -d)
  trap 'rm -rf "$definitions" "$code"' EXIT
fi
mkdir -p bin
go build -C hack/crds -o ../../bin/ tool # a module of its own, with exact versions
# kubectl apply keeps a copy of the object in an annotation, which is limited to 256 KiB: hence the short descriptions. Rates are floating-point
# numbers, which controller-gen calls dangerous, because languages differ in how they write them.
bin/controller-gen paths=./$types \
  crd:maxDescLen=200,generateEmbeddedObjectMeta=true,allowDangerousTypes=true output:crd:dir="$definitions" \
  object output:object:dir="$code"
# The API server accepts any exponent in the quantities of a template, and gshare-controller would parse 1000000000000000000e999999999 for ever.
quantity='^(\\+|-)?(([0-9]{1,32}(\\.[0-9]{0,32})?)|(\\.[0-9]{1,32}))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?[0-9]{1,2}))?$'
sed -i "s/^\( *pattern: \).*\[numkMGTPE\].*/\1$quantity/" "$definitions"/serving.gshare.dev_*.yaml
# The other fields that are a number or a text are ports in templates. The API server accepts any number there, but Go's type holds only 32 bits:
# one object with a larger number would keep gshare-controller and the gateways from reading any object of its kind.
sed -i -e '/ pattern: /{n;b' -e '}' -e 's/^\( *\)x-kubernetes-int-or-string: true$/\1maximum: 65535\n\1minimum: 0\n&/' "$definitions"/serving.gshare.dev_*.yaml
if [ "${1:-}" = check ] && ! { diff <(cat manifests/serving/serving.gshare.dev_*) <(cat "$definitions"/*) && diff $types/$copies "$code/$copies"; }; then
  echo "manifests/serving or $types/$copies is not what $types says (make crds writes it)"
  exit 1
fi
