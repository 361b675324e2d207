package v1alpha1

// ProfileRequest is a request that a server is asked again and again.
//
// +kubebuilder:validation:XValidation:rule="!has(self.body) || !has(self.bodyFrom)",fieldPath=".bodyFrom",message="want one of body and bodyFrom"
type ProfileRequest struct {
	// method is that of HTTP: without it POST with protocol OIP or with a body, else GET.
	// +optional
	// +kubebuilder:validation:Enum=GET;POST;PUT
	Method string `json:"method,omitempty"`

	// path is that of the URL: without it / or, with protocol OIP, /v2/models/NAME/infer with the name of the function or of the profile.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="want a path that begins with /"
	Path string `json:"path,omitempty"`

	// body is that of the request; with protocol OIP, of one row. Without it, nothing is sent or, with protocol OIP, zeros as the metadata of the
	// model describe them.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Body string `json:"body,omitempty"`

	// bodyFrom names the body in a ConfigMap instead, for one that is longer or no text.
	// +optional
	BodyFrom *BodyReference `json:"bodyFrom,omitempty"`

	// headers are more headers. Whoever may read the object reads them: a server that is measured should need no secret.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Headers []RequestHeader `json:"headers,omitempty"`

	// contentType is the header Content-Type: without it application/json with a body.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]*$')",message="want printable ASCII"
	ContentType string `json:"contentType,omitempty"`

	// stream says that the answer is a stream of server-sent events, whose first is to come within the objective.
	// +optional
	Stream bool `json:"stream,omitempty"`
}

// BodyReference names a body in a ConfigMap of the same namespace. The pod that sends the requests mounts it. What is measured is not measured again when the
// ConfigMap changes: name another one.
type BodyReference struct {
	// configMap is the metadata.name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="want the name of a ConfigMap"
	ConfigMap string `json:"configMap"`

	// key is that of the body in data or binaryData of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$') && self != '.' && !self.startsWith('..')",message="want a key of a ConfigMap"
	Key string `json:"key"`
}

// RequestHeader is a header of a request.
type RequestHeader struct {
	// name is that of the header, such as Accept. Those of the connection and the length are set by who sends it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][-A-Za-z0-9_]*$') && !(self.lowerAscii() in ['host', 'connection', 'content-length', 'content-type', 'transfer-encoding', 'upgrade', 'trailer', 'te', 'keep-alive'])",message="want a header such as Accept, and none of the connection; contentType has its own field"
	Name string `json:"name"`

	// value is that of the header.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]*$')",message="want printable ASCII"
	Value string `json:"value"`
}
