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

// checkAPIServer checks that the version of the API server is supported.
func (e *examination) checkAPIServer() {
	info, err := e.client.Discovery().ServerVersion()
	if err != nil {
		e.addFinding(apiServer, "", "version", Unknown, err.Error(), "check that the API server is running and the kubeconfig is correct")
		return
	}
	if e.release, err = parseRelease(info.GitVersion); err != nil {
		e.addFinding(apiServer, "", "version", Unknown, info.GitVersion, "")
		return
	}
	e.addCheck(apiServer, "", "version", e.release.atLeast(minServer), Failed, info.GitVersion,
		"upgrade to "+minServer.String()+", the oldest supported version")
}

// The kinds of admission policies. The kind of a policy's binding is the policy's kind followed by binding.
const (
	mutating   = "MutatingAdmissionPolicy"
	validating = "ValidatingAdmissionPolicy"
	binding    = "Binding"
)

// optionalPolicy is the name of the admission policy that administrators may choose not to install.
const optionalPolicy = "gshare-slo"

// checkAdmission checks that the admission policies of this version of gshare are installed.
func (e *examination) checkAdmission() {
	names, err := policyNames()
	if err != nil {
		e.addFinding(admission, "", "policies", Unknown, err.Error(), "")
		return
	}
	defaults, err := e.defaultsVersion()
	if err != nil {
		e.addFinding(admission, "", mutating, Unknown, err.Error(), "run doctor with permission to read the API server's discovery")
	} else {
		e.checkDefaults(defaults, names)
	}
	for _, kind := range []string{validating, validating + binding} {
		e.checkInstalled(kind, "v1", names[kind], applyAll)
	}
}

// applyAll says how to install what is missing. It is no command: manifests without the overlay would change images and configuration.
const applyAll = "apply your overlay, gshare.yaml or chart again (docs/operate.md)"

// checkInstalled checks that all admission policies, or bindings, of a kind are installed. version is the API version in which it reads them.
func (e *examination) checkInstalled(kind, version string, names []string, fix string) {
	var there, missing []string
	for _, name := range names {
		switch err := e.getPolicy(kind, version, name); {
		case apierrors.IsNotFound(err) && name == optionalPolicy:
			e.addFinding(admission, "", kind, Warning, name+" is not installed: pods of every namespace may use the class slo", applyAll+", unless this is intended")
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			e.addFinding(admission, "", kind, Unknown, err.Error(), "run doctor with permission to get "+kind)
			return
		default:
			there = append(there, name)
		}
	}
	message := labelled("installed: ", there) + labelled("; missing: ", missing)
	if version != "v1" {
		message += " (" + version + ")"
	}
	e.addCheck(admission, "", kind, len(missing) == 0, Failed, message, fix)
}

// labelled returns the label followed by the names, or an empty string if there are no names.
func labelled(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return what + strings.Join(names, ", ")
}

// getPolicy reads an admission policy or binding from the API server and returns only the error.
func (e *examination) getPolicy(kind, version, name string) (err error) {
	api, beta, o := e.client.AdmissionregistrationV1(), e.client.AdmissionregistrationV1beta1(), metav1.GetOptions{}
	switch kind + version {
	case mutating + "v1":
		_, err = api.MutatingAdmissionPolicies().Get(e.ctx, name, o)
	case mutating + binding + "v1":
		_, err = api.MutatingAdmissionPolicyBindings().Get(e.ctx, name, o)
	case mutating + "v1beta1":
		_, err = beta.MutatingAdmissionPolicies().Get(e.ctx, name, o)
	case mutating + binding + "v1beta1":
		_, err = beta.MutatingAdmissionPolicyBindings().Get(e.ctx, name, o)
	case validating + "v1":
		_, err = api.ValidatingAdmissionPolicies().Get(e.ctx, name, o)
	case validating + binding + "v1":
		_, err = api.ValidatingAdmissionPolicyBindings().Get(e.ctx, name, o)
	}
	return err
}

// policyNames returns the names of gshare's admission policies and bindings by kind, from the manifests embedded in this program.
func policyNames() (map[string][]string, error) {
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
		err = errors.Join(err, addObjectNames(file, names))
	}
	return names, err
}

// addObjectNames adds the names of the objects in a manifest file to a map by kind.
func addObjectNames(file []byte, names map[string][]string) error {
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 1024); ; {
		var object metav1.PartialObjectMetadata
		switch err := d.Decode(&object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("decode policies: %w", err)
		}
		names[object.Kind] = append(names[object.Kind], object.Name)
	}
}
