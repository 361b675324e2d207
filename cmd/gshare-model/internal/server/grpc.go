package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/gshare-dev/gshare/serving/oip/inference"
)

// grpcService answers the methods of the Open Inference Protocol over gRPC.
type grpcService struct{ *Server }

// withGRPC returns a handler that serves gRPC and passes all other requests to another handler.
func (s grpcService) withGRPC(other http.Handler) http.Handler {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxBody), grpc.MaxSendMsgSize(maxBody))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: pb.Service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			method("ServerLive", s.serverLive),
			method("ServerReady", s.serverReady),
			method("ModelReady", s.modelReady),
			method("ServerMetadata", s.serverMetadata),
			method("ModelMetadata", s.modelMetadata),
			method("ModelInfer", s.modelInfer),
			method("RepositoryIndex", s.repositoryIndex),
			method("RepositoryModelLoad", s.repositoryLoad),
			method("RepositoryModelUnload", s.repositoryUnload),
			method("SystemSharedMemoryStatus", s.memoryStatus),
			method("SystemSharedMemoryRegister", s.memoryRegister),
			method("SystemSharedMemoryUnregister", s.memoryUnregister),
		},
	}, s)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			server.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}

// method returns the description of a method of the service, which answer implements.
func method[Request, Response any](name string, answer func(context.Context, *Request) (*Response, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := new(Request)
		if err := decode(request); err != nil {
			return nil, err
		}
		response, err := answer(ctx, request)
		if err != nil {
			return nil, grpcError(err)
		}
		return response, nil
	}}
}

// grpcError converts an error to one with the gRPC code that corresponds to its HTTP status.
func grpcError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	code := codes.Internal
	switch statusOf(err) {
	case http.StatusBadRequest:
		code = codes.InvalidArgument
	case http.StatusNotFound:
		code = codes.NotFound
	case http.StatusServiceUnavailable:
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}

func (s grpcService) serverLive(context.Context, *pb.ServerLiveRequest) (*pb.ServerLiveResponse, error) {
	return &pb.ServerLiveResponse{Live: true}, nil
}

func (s grpcService) serverReady(context.Context, *pb.ServerReadyRequest) (*pb.ServerReadyResponse, error) {
	return &pb.ServerReadyResponse{Ready: s.ready()}, nil
}

func (s grpcService) modelReady(_ context.Context, r *pb.ModelReadyRequest) (*pb.ModelReadyResponse, error) {
	return &pb.ModelReadyResponse{Ready: s.ready()}, s.known(r.GetName(), r.GetVersion())
}

func (s grpcService) serverMetadata(context.Context, *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	return &pb.ServerMetadataResponse{Name: serverName, Version: s.Version, Extensions: extensions}, nil
}

func (s grpcService) modelMetadata(_ context.Context, r *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	if err := s.known(r.GetName(), r.GetVersion()); err != nil {
		return nil, err
	}
	m := s.metadata()
	return &pb.ModelMetadataResponse{
		Name: m.Name, Versions: m.Versions, Platform: m.Platform, Inputs: tensorMetadata(m.Inputs), Outputs: tensorMetadata(m.Outputs),
	}, nil
}

func tensorMetadata(tensors []Tensor) (all []*pb.ModelMetadataResponse_TensorMetadata) {
	for _, t := range tensors {
		all = append(all, &pb.ModelMetadataResponse_TensorMetadata{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape})
	}
	return all
}

func (s grpcService) repositoryIndex(_ context.Context, r *pb.RepositoryIndexRequest) (*pb.RepositoryIndexResponse, error) {
	response := &pb.RepositoryIndexResponse{}
	for _, m := range s.index(r.GetReady()) {
		response.Models = append(response.Models, &pb.RepositoryIndexResponse_ModelIndex{Name: m.Name, Version: m.Version, State: m.State, Reason: m.Reason})
	}
	return response, nil
}

func (s grpcService) repositoryLoad(ctx context.Context, r *pb.RepositoryModelLoadRequest) (*pb.RepositoryModelLoadResponse, error) {
	if err := s.known(r.GetModelName(), ""); err != nil {
		return nil, err
	}
	return &pb.RepositoryModelLoadResponse{}, s.Engine.Load(ctx)
}

func (s grpcService) repositoryUnload(ctx context.Context, r *pb.RepositoryModelUnloadRequest) (*pb.RepositoryModelUnloadResponse, error) {
	if err := s.known(r.GetModelName(), ""); err != nil {
		return nil, err
	}
	return &pb.RepositoryModelUnloadResponse{}, s.Engine.Unload(ctx)
}

func (s grpcService) memoryStatus(_ context.Context, r *pb.SystemSharedMemoryStatusRequest) (*pb.SystemSharedMemoryStatusResponse, error) {
	list, err := s.regions.list(r.GetName())
	response := &pb.SystemSharedMemoryStatusResponse{Regions: map[string]*pb.SystemSharedMemoryStatusResponse_RegionStatus{}}
	for _, one := range list {
		response.Regions[one.Name] = &pb.SystemSharedMemoryStatusResponse_RegionStatus{
			Name: one.Name, Key: one.Key, Offset: uint64(one.Offset), ByteSize: uint64(one.Size),
		}
	}
	return response, err
}

func (s grpcService) memoryRegister(_ context.Context, r *pb.SystemSharedMemoryRegisterRequest) (*pb.SystemSharedMemoryRegisterResponse, error) {
	if r.GetOffset() > math.MaxInt64 || r.GetByteSize() > math.MaxInt64 {
		return nil, errorf(http.StatusBadRequest, "region %q: no memory is that large", r.GetName())
	}
	return &pb.SystemSharedMemoryRegisterResponse{}, s.regions.register(region{r.GetName(), r.GetKey(), int(r.GetOffset()), int(r.GetByteSize())})
}

func (s grpcService) memoryUnregister(_ context.Context, r *pb.SystemSharedMemoryUnregisterRequest) (*pb.SystemSharedMemoryUnregisterResponse, error) {
	s.regions.unregister(r.GetName())
	return &pb.SystemSharedMemoryUnregisterResponse{}, nil
}

// modelInfer runs the batch of a request. The output has raw contents if the inputs do, else numbers.
func (s grpcService) modelInfer(ctx context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	if err := s.known(r.GetModelName(), r.GetModelVersion()); err != nil {
		return nil, err
	}
	raw := r.GetRawInputContents()
	isRaw := len(raw) > 0
	var inputs []*tensor
	for _, in := range r.GetInputs() {
		one := &tensor{Tensor: Tensor{in.GetName(), in.GetDatatype(), in.GetShape()}}
		var err error
		switch where := spanOf(in.GetParameters()); {
		case where != nil:
			one.data, err = s.regions.read(*where)
		case isRaw && in.GetContents() != nil:
			err = errors.New("has contents, but the request has raw contents")
		case isRaw && len(raw) == 0:
			err = errors.New("has no contents")
		case isRaw:
			one.data, raw = raw[0], raw[1:]
		default:
			one.data, err = fromContents(in.GetDatatype(), in.GetContents())
		}
		if err != nil {
			return nil, errorf(http.StatusBadRequest, "input %q: %v", in.GetName(), err)
		}
		inputs = append(inputs, one)
	}
	if len(raw) > 0 {
		return nil, errorf(http.StatusBadRequest, "%d raw contents have no input", len(raw))
	}
	outputs := make([]wanted, len(r.GetOutputs()))
	for i, o := range r.GetOutputs() {
		outputs[i] = wanted{o.GetName(), spanOf(o.GetParameters())}
	}
	result, err := s.infer(ctx, inputs, outputs)
	if err != nil {
		return nil, err
	}
	out := &pb.ModelInferResponse_InferOutputTensor{Name: result.Name, Datatype: result.Datatype, Shape: result.Shape}
	response := &pb.ModelInferResponse{
		ModelName: s.Engine.Table.Name, ModelVersion: s.Engine.Table.Version, Id: r.GetId(), Outputs: []*pb.ModelInferResponse_InferOutputTensor{out},
	}
	switch {
	case len(outputs) > 0 && outputs[0].memory != nil:
		out.Parameters = spanParameters(span{outputs[0].memory.region, outputs[0].memory.offset, len(result.data)})
	case isRaw:
		response.RawOutputContents = [][]byte{result.data}
	default:
		out.Contents = &pb.InferTensorContents{}
		for at := 0; at < len(result.data); at += 4 {
			out.Contents.UintContents = append(out.Contents.UintContents, binary.LittleEndian.Uint32(result.data[at:]))
		}
	}
	return response, nil
}

// The parameters of tensors in shared memory.
const (
	regionParameter = "shared_memory_region"
	sizeParameter   = "shared_memory_byte_size"
	offsetParameter = "shared_memory_offset"
)

// spanOf returns the span of shared memory that parameters name, or nil if they name none.
func spanOf(p map[string]*pb.InferParameter) *span {
	region := p[regionParameter].GetStringParam()
	if region == "" {
		return nil
	}
	return &span{region, int(p[offsetParameter].GetInt64Param()), int(p[sizeParameter].GetInt64Param())}
}

func spanParameters(s span) map[string]*pb.InferParameter {
	number := func(n int) *pb.InferParameter {
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: int64(n)}}
	}
	return map[string]*pb.InferParameter{
		regionParameter: {ParameterChoice: &pb.InferParameter_StringParam{StringParam: s.region}},
		sizeParameter:   number(s.size), offsetParameter: number(s.offset),
	}
}

// fromContents converts the typed elements of a message to bytes in the layout of a tensor.
func fromContents(datatype string, c *pb.InferTensorContents) (data []byte, err error) {
	little := binary.LittleEndian
	switch datatype {
	case "BOOL":
		return binary.Append(nil, little, c.GetBoolContents())
	case "INT8":
		return narrow(data, c.GetIntContents(), math.MinInt8, math.MaxInt8, func(b []byte, v int32) []byte { return append(b, byte(v)) })
	case "INT16":
		return narrow(data, c.GetIntContents(), math.MinInt16, math.MaxInt16, func(b []byte, v int32) []byte { return little.AppendUint16(b, uint16(v)) })
	case "UINT8":
		return narrow(data, c.GetUintContents(), 0, math.MaxUint8, func(b []byte, v uint32) []byte { return append(b, byte(v)) })
	case "UINT16":
		return narrow(data, c.GetUintContents(), 0, math.MaxUint16, func(b []byte, v uint32) []byte { return little.AppendUint16(b, uint16(v)) })
	case "INT32":
		return binary.Append(nil, little, c.GetIntContents())
	case "INT64":
		return binary.Append(nil, little, c.GetInt64Contents())
	case "UINT32":
		return binary.Append(nil, little, c.GetUintContents())
	case "UINT64":
		return binary.Append(nil, little, c.GetUint64Contents())
	case "FP32":
		return binary.Append(nil, little, c.GetFp32Contents())
	case "FP64":
		return binary.Append(nil, little, c.GetFp64Contents())
	case "BYTES":
		for _, one := range c.GetBytesContents() {
			data = append(little.AppendUint32(data, uint32(len(one))), one...)
		}
		return data, nil
	}
	return nil, fmt.Errorf("the elements of %s have no contents but raw ones", datatype)
}

// narrow appends values of a datatype that is narrower than the Go type in which the message has them. It refuses values that do not fit.
func narrow[T int32 | uint32](data []byte, values []T, least, most T, add func([]byte, T) []byte) ([]byte, error) {
	for _, v := range values {
		if v < least || v > most {
			return nil, fmt.Errorf("%d is outside %d to %d", v, least, most)
		}
		data = add(data, v)
	}
	return data, nil
}
