package install_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	serving "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// TestStoredDecodes: whatever value a user gives to any field of a serving object, if the API server stores the object, its Go type can decode it. Otherwise
// a single object of one user would keep gshare-controller and the gateways from reading all objects of all users, since they come in one list.
func TestStoredDecodes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := serving.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../manifests/serving/serving.gshare.dev_*.yaml")
	if err != nil || len(files) != 5 {
		t.Fatalf("%d definitions, want 5: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definition := &extensions.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, definition); err != nil {
			t.Fatal(err)
		}
		kind := definition.Spec.Names.Kind
		t.Run(kind, func(t *testing.T) {
			f := fields{t: t, known: map[string][]any{}, new: func() runtime.Object {
				object, err := scheme.New(serving.GroupVersion.WithKind(kind))
				if err != nil {
					t.Fatal(err)
				}
				return object
			}}
			f.walk(nil, definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
			if f.tried < 50 || f.refused == 0 {
				t.Errorf("%d values are decoded, and %d are refused by the definition", f.tried, f.refused)
			}
		})
	}
}

// values are tried for each field, as JSON.
var values = []string{
	"0", "-1", "65536", "2147483648", "3000000000", "-3000000000", "9223372036854775807", "9223372036854775808", "1e2", "1e18", "1e19", "1e300", "-1e300", "0.5",
	`""`, `"x"`, `"1"`, `"-1"`, `"3000000000"`, `"1e999999999"`, `"1e99"`, `"1.5Gi"`, `"0x10"`, `"NaN"`, `"1m"`, `"-5s"`, `"2020-01-01T00:00:00Z"`,
	`"2020-01-01T00:00:00"`, `"2020-01-01 00:00:00Z"`, `"2020-02-30T00:00:00Z"`, `"2020-01-01t00:00:00z"`, `"2020-01-01T00:00:60Z"`, `"2020-01-01T00:00:00.123456789123Z"`,
	`"9999-12-31T24:00:00Z"`, `"2020-01-01T00:00:00+25:00"`, `"\ud800"`, "true", "null", "{}", "[]", `["x"]`, "[1]", `{"x":"y"}`, `{"x":1}`,
}

// fields tries all values for all fields of a kind.
type fields struct {
	t              *testing.T
	new            func() runtime.Object
	known          map[string][]any // results of taken, by the schema
	tried, refused int
}

// walk tries all values for a field and for the fields within it. The path has the names of fields, and an empty name for the elements of a list.
func (f *fields) walk(path []string, schema *extensions.JSONSchemaProps) {
	if len(path) == 1 && path[0] != "spec" {
		return // the API server decodes metadata itself, and users cannot write the status
	}
	if len(path) > 0 && len(schema.Properties) == 0 { // an object with properties can be nothing but an object
		f.try(path, schema)
	}
	for name, field := range schema.Properties {
		f.walk(append(slices.Clone(path), name), &field)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		f.walk(append(slices.Clone(path), ""), schema.Items.Schema)
	}
	if more := schema.AdditionalProperties; more != nil && more.Schema != nil {
		f.walk(append(slices.Clone(path), "any"), more.Schema)
	}
}

func (f *fields) try(path []string, schema *extensions.JSONSchemaProps) {
	for _, value := range f.taken(schema) {
		f.tried++
		object := value
		for at := len(path) - 1; at >= 0; at-- {
			if path[at] == "" {
				object = []any{object}
			} else {
				object = map[string]any{path[at]: object}
			}
		}
		stored, err := json.Marshal(object)
		if err != nil {
			f.t.Fatal(err)
		}
		if err := json.Unmarshal(stored, f.new()); err != nil {
			f.t.Errorf("%s: the API server stores %v, and that is not decoded: %v", strings.Join(path, "."), value, err)
		}
	}
}

// taken returns the values that the API server accepts for a field, ignoring which other fields are required.
func (f *fields) taken(schema *extensions.JSONSchemaProps) []any {
	alone := schema.DeepCopy()
	alone.Description, alone.Required, alone.XValidations = "", nil, nil
	text, err := json.Marshal(alone)
	if err != nil {
		f.t.Fatal(err)
	}
	if taken, known := f.known[string(text)]; known { // many fields have the same schema
		return taken
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := extensions.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(alone, internal, nil); err != nil {
		f.t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		f.t.Fatal(err)
	}
	var taken []any
	for _, text := range values {
		var object map[string]any
		if err := utiljson.Unmarshal([]byte(`{"v":`+text+`}`), &object); err != nil {
			continue // the API server cannot decode it either
		}
		if value := object["v"]; value == nil || len(validation.ValidateCustomResource(nil, value, validator)) > 0 { // null means that the field is unset
			f.refused++
		} else {
			taken = append(taken, value)
		}
	}
	f.known[string(text)] = taken
	return taken
}
