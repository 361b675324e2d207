// Package expressions_test evaluates the expressions of the admission policies with the API server's own code, but without an API server, and
// compares them with the rules of the programs that check the same.
package expressions_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/gshare-dev/gshare/manifests"
)

// policy is a ValidatingAdmissionPolicy of the manifests.
type policy struct {
	admissionv1.ValidatingAdmissionPolicy
	validator validating.Validator
}

// readPolicy returns the policy of this name in a file of manifests/admission, or of manifests/node.
func readPolicy(t *testing.T, file, name string) *policy {
	t.Helper()
	text, err := manifests.Admission.ReadFile("admission/" + file)
	if err != nil {
		text = manifests.NodePolicies
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		p := &policy{}
		if err := yaml.Unmarshal(document, &p.ValidatingAdmissionPolicy); err != nil {
			t.Fatal(err)
		}
		if p.Kind == "ValidatingAdmissionPolicy" && p.Name == name {
			p.compile(t)
			return p
		}
	}
	t.Fatalf("no policy %s in %s", name, file)
	return nil
}

// compile compiles the policy as the API server does.
func (p *policy) compile(t *testing.T) {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range p.Spec.Variables {
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declared, environment.StoredExpressions); result.Error != nil {
			t.Fatalf("variable %s: %v", v.Name, result.Error)
		}
	}
	condition := func(expressions ...cel.ExpressionAccessor) cel.ConditionEvaluator {
		compiled := compiler.CompileCondition(expressions, declared, environment.StoredExpressions)
		for _, err := range compiled.CompilationErrors() {
			t.Fatal(err)
		}
		return compiled
	}
	var matches, validations, messages []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		matches = append(matches, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
		var message cel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	p.validator = validating.NewValidator(condition(validations...), matchconditions.NewMatcher(condition(matches...), p.Spec.FailurePolicy, "policy", "validate",
		p.Name), condition(), condition(messages...), p.Spec.FailurePolicy, nil)
}

// judge returns the messages with which the policy refuses an object, or warns about it. old is nil if the object is created.
func (p *policy) judge(t *testing.T, object, old runtime.Object) (messages []string) {
	t.Helper()
	gvk := object.GetObjectKind().GroupVersionKind()
	if gvk.Kind == "" {
		gvk = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	}
	resource := gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	attributes := admission.NewAttributesRecord(object, old, gvk, "default", "name", resource, "", operation, &metav1.CreateOptions{}, false, &user.DefaultInfo{})
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: gvk, VersionedObject: admission.NewLazyObject(object)}
	if old != nil {
		versioned.VersionedOldObject = admission.NewLazyObject(old)
	}
	for _, d := range p.validator.Validate(t.Context(), resource, versioned, nil, nil, celconfig.RuntimeCELCostBudget, nil).Decisions {
		switch d.Evaluation {
		case validating.EvalError:
			t.Fatalf("%s: %s\n%s", p.Name, d.Message, text(object))
		case validating.EvalDeny:
			messages = append(messages, d.Message)
		}
	}
	return messages
}

// texts returns the text constants in the expression of a variable or match condition.
func (p *policy) texts(t *testing.T, name string) (texts []string) {
	t.Helper()
	expressions := map[string]string{}
	for _, v := range p.Spec.Variables {
		expressions[v.Name] = v.Expression
	}
	for _, c := range p.Spec.MatchConditions {
		expressions[c.Name] = c.Expression
	}
	for _, found := range regexp.MustCompile(`'([^']*)'`).FindAllStringSubmatch(expressions[name], -1) {
		texts = append(texts, found[1])
	}
	if len(texts) == 0 {
		t.Fatalf("%s has no texts in %s", p.Name, name)
	}
	return texts
}

func text(object any) string {
	text, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
