package v1alpha1

// ProfileRequest is a request that is sent to a server again and again.
//
// +kubebuilder:validation:XValidation:rule="!has(self.body) || !has(self.bodyFrom)",fieldPath=".bodyFrom",message="want one of body and bodyFrom"
type ProfileRequest struct {
	// method is the HTTP method. Defaults to POST with protocol OIP or with a body, and to GET otherwise.
	// +optional
	// +kubebuilder:validation:Enum=GET;POST;PUT
	Method string `json:"method,omitempty"`

	// path is the path of the URL. Defaults to / or, with protocol OIP, to /v2/models/NAME/infer with the name of the function or profile.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="want a path that begins with /"
	Path string `json:"path,omitempty"`

	// body is the body of the request; with protocol OIP, of one row. Without it, the request has no body or, with protocol OIP, zeros in the shapes
	// that the metadata of the model describes.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Body string `json:"body,omitempty"`

	// bodyFrom names a ConfigMap that holds the body instead, for a body that is longer or not text.
	// +optional
	BodyFrom *BodyReference `json:"bodyFrom,omitempty"`

	// headers are additional headers. Everyone who may read the object can read them, so a server to measure should need no secret.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Headers []RequestHeader `json:"headers,omitempty"`

	// contentType is the Content-Type header. Defaults to application/json if there is a body.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]*$')",message="want printable ASCII"
	ContentType string `json:"contentType,omitempty"`

	// stream says that the response is a stream of server-sent events, the first of which must arrive within the objective.
	// +optional
	Stream bool `json:"stream,omitempty"`
}

// BodyReference names a body in a ConfigMap in the same namespace. The pod that sends the requests mounts it. A change of the ConfigMap does not
// start another measurement: name another ConfigMap.
type BodyReference struct {
	// configMap is the metadata.name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="want the name of a ConfigMap"
	ConfigMap string `json:"configMap"`

	// key is the key of the body in data or binaryData of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$') && self != '.' && !self.startsWith('..')",message="want a key of a ConfigMap"
	Key string `json:"key"`
}

// RequestHeader is a header of a request.
type RequestHeader struct {
	// name is the name of the header, such as Accept. The sender sets the headers of the connection and the length.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][-A-Za-z0-9_]*$') && !(self.lowerAscii() in ['host', 'connection', 'content-length', 'content-type', 'transfer-encoding', 'upgrade', 'trailer', 'te', 'keep-alive'])",message="want a header such as Accept, and none of the connection; contentType has its own field"
	Name string `json:"name"`

	// value is the value of the header.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[ -~]*$')",message="want printable ASCII"
	Value string `json:"value"`
}
