// Package profileview reads GPUProfiles as kubectl prints them, and what they have found.
package profileview

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/api/strictyaml"
)

// MaxFile is the greatest size of a file of profiles in bytes: one with 200 trials takes about 100,000.
const MaxFile = 64 << 20

// object is what a document must have for its kind to be known.
type object struct {
	metav1.TypeMeta `json:",inline"`
	Items           []runtime.RawExtension `json:"items"`
}

// recorded is the part of a GPUProfile that says of what it is and what it has found. The rest of its template is left out since Kubernetes' quantities, such as the
// resources of a container, may take minutes to decode: 12345678901234567890e999999999 does.
type recorded struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		FunctionRef *api.FunctionReference `json:"functionRef"`
		Training    *api.ProfileTraining   `json:"training"`
		Template    struct {
			Spec struct {
				Containers []struct {
					Command []string `json:"command"`
					Args    []string `json:"args"`
				} `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status api.GPUProfileStatus `json:"status"`
}

const kind = "GPUProfile"

// Decode reads GPUProfiles in YAML or JSON: one in each document, or lists of them, as `kubectl get gpuprofiles -A -o yaml` prints them. Fields that this
// version does not know are skipped, as the objects may be those of another one. Anything else than GPUProfiles is an error, and so is none. Of a specification
// the profiles have functionRef, training, and the command and args of the template's containers.
func Decode(in io.Reader) ([]api.GPUProfile, error) {
	text, err := io.ReadAll(io.LimitReader(in, MaxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > MaxFile:
		return nil, fmt.Errorf("more than %d bytes", MaxFile)
	}
	var all []api.GPUProfile
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for number := 1; ; number++ {
		var document runtime.RawExtension
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, strictyaml.Plain(err))
		}
		if len(document.Raw) == 0 || string(document.Raw) == "null" {
			continue
		}
		found, err := profilesIn(document.Raw)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no " + kind + " in it")
	}
	return all, nil
}

// profilesIn returns the profiles of one document.
func profilesIn(document []byte) ([]api.GPUProfile, error) {
	var o object
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &o); err != nil {
		return nil, strictyaml.Plain(err)
	}
	ofProfiles := o.APIVersion == api.GroupVersion.String() && o.Kind == kind+"List"
	if !ofProfiles && (o.APIVersion != "v1" || o.Kind != "List") {
		p, err := profileIn(document, o.TypeMeta)
		if err != nil {
			return nil, err
		}
		return []api.GPUProfile{p}, nil
	}
	var all []api.GPUProfile
	for i := range o.Items {
		var item object
		if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Items[i].Raw, &item); err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		if ofProfiles && item.Kind == "" { // the API server leaves it out
			item.TypeMeta = metav1.TypeMeta{APIVersion: o.APIVersion, Kind: kind}
		}
		p, err := profileIn(o.Items[i].Raw, item.TypeMeta)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		all = append(all, p)
	}
	return all, nil
}

func profileIn(text []byte, is metav1.TypeMeta) (p api.GPUProfile, err error) {
	if is.APIVersion != api.GroupVersion.String() || is.Kind != kind {
		return p, fmt.Errorf("want kind %s of %s, not %.64q of %.64q", kind, api.GroupVersion, is.Kind, is.APIVersion)
	}
	var r recorded
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &r); err != nil {
		return p, err
	}
	p = api.GPUProfile{TypeMeta: is, ObjectMeta: r.Metadata, Status: r.Status}
	p.Spec.FunctionRef, p.Spec.Training = r.Spec.FunctionRef, r.Spec.Training
	for _, c := range r.Spec.Template.Spec.Containers {
		p.Spec.Template.Spec.Containers = append(p.Spec.Template.Spec.Containers, v1.Container{Command: c.Command, Args: c.Args})
	}
	// Notes have the names.
	if len(validation.IsDNS1123Subdomain(p.Name)) > 0 || p.Namespace != "" && len(validation.IsDNS1123Label(p.Namespace)) > 0 {
		return p, fmt.Errorf("metadata: %.64q in namespace %.64q is no name of an object", p.Name, p.Namespace)
	}
	return p, nil
}

// Name returns the namespace and the name of a profile, as namespace/name.
func Name(p *api.GPUProfile) string {
	if p.Namespace == "" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}
