package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gshare-dev/gshare/manifests"
)

func (e *examination) apiServer() {
	info, err := e.client.Discovery().ServerVersion()
	if err != nil {
		e.say(apiServer, "", "version", Unknown, err.Error(), "is the API server up, and the kubeconfig right?")
		return
	}
	if e.release, err = parseRelease(info.GitVersion); err != nil {
		e.say(apiServer, "", "version", Unknown, info.GitVersion, "")
		return
	}
	e.check(apiServer, "", "version", e.release.atLeast(leastServer), Failed, info.GitVersion,
		"upgrade to "+leastServer.String()+": the admission policies need it")
}

// policyKinds are the kinds that the policies and their bindings have.
var policyKinds = []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

// optional is the policy that an administrator may leave out.
const optional = "gshare-slo"

// admission holds what is installed against the policies that this gshare comes with.
func (e *examination) admission() {
	names, err := wanted()
	if err != nil {
		e.say(admission, "", "policies", Unknown, err.Error(), "")
		return
	}
	for _, kind := range policyKinds {
		e.installed(kind, names[kind])
	}
}

// installed looks for all policies of a kind.
func (e *examination) installed(kind string, names []string) {
	var there, missing []string
	for _, name := range names {
		switch err := e.get(kind, name); {
		case apierrors.IsNotFound(err) && name == optional:
			e.say(admission, "", kind, Warning, name+" is not installed: every namespace may ask for class slo", "kubectl apply -k manifests, if that is not meant")
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			e.say(admission, "", kind, Unknown, err.Error(), "ask as somebody who may get "+kind)
			return
		default:
			there = append(there, name)
		}
	}
	e.check(admission, "", kind, len(missing) == 0, Failed, join("installed: ", there)+join("; missing: ", missing), "kubectl apply -k manifests")
}

func join(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return what + strings.Join(names, ", ")
}

func (e *examination) get(kind, name string) (err error) {
	api, o := e.client.AdmissionregistrationV1(), metav1.GetOptions{}
	switch kind {
	case "MutatingAdmissionPolicy":
		_, err = api.MutatingAdmissionPolicies().Get(e.ctx, name, o)
	case "MutatingAdmissionPolicyBinding":
		_, err = api.MutatingAdmissionPolicyBindings().Get(e.ctx, name, o)
	case "ValidatingAdmissionPolicy":
		_, err = api.ValidatingAdmissionPolicies().Get(e.ctx, name, o)
	case "ValidatingAdmissionPolicyBinding":
		_, err = api.ValidatingAdmissionPolicyBindings().Get(e.ctx, name, o)
	}
	return err
}

// wanted lists the policies that gshare comes with, by kind, in the order of its files.
func wanted() (map[string][]string, error) {
	files := [][]byte{manifests.NodePolicies}
	err := fs.WalkDir(manifests.Admission, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var content []byte
			content, err = manifests.Admission.ReadFile(path)
			files = append(files, content)
		}
		return err
	})
	names := map[string][]string{}
	for _, file := range files {
		err = errors.Join(err, namesIn(file, names))
	}
	return names, err
}

func namesIn(file []byte, names map[string][]string) error {
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 1024); ; {
		var object metav1.PartialObjectMetadata
		switch err := d.Decode(&object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the policies: %w", err)
		}
		names[object.Kind] = append(names[object.Kind], object.Name)
	}
}
