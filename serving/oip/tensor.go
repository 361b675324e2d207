package oip

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// datatype describes a datatype of the protocol.
type datatype struct {
	bytes     int    // size of an element in binary form; 0 for BYTES, whose elements carry their own length
	kinds     kind   // kinds of JSON values that every server accepts
	most      uint64 // largest integer
	mostBelow uint64 // magnitude of the smallest integer
}

var datatypes = map[string]datatype{
	"BOOL":   {bytes: 1, kinds: booleans},
	"UINT8":  {1, integers, math.MaxUint8, 0},
	"UINT16": {2, integers, math.MaxUint16, 0},
	"UINT32": {4, integers, math.MaxUint32, 0},
	"UINT64": {8, integers, math.MaxUint64, 0},
	"INT8":   {1, integers, math.MaxInt8, -math.MinInt8},
	"INT16":  {2, integers, math.MaxInt16, -math.MinInt16},
	"INT32":  {4, integers, math.MaxInt32, -math.MinInt32},
	"INT64":  {8, integers, math.MaxInt64, -math.MinInt64},
	"FP16":   {2, integers | fractions, math.MaxUint64, math.MaxUint64},
	"BF16":   {2, integers | fractions, math.MaxUint64, math.MaxUint64},
	"FP32":   {4, integers | fractions, math.MaxUint64, math.MaxUint64},
	"FP64":   {8, integers | fractions, math.MaxUint64, math.MaxUint64},
	"BYTES":  {kinds: texts},
}

// takes reports whether every server accepts the values of a as elements.
func (d datatype) takes(a *array) bool {
	return a.kinds&^d.kinds == 0 && a.numbers.largest <= d.most && a.numbers.smallest <= d.mostBelow
}

// encoding is the way in which the data of a tensor are written.
type encoding string

const (
	flat      encoding = "a flat array"
	nested    encoding = "nested arrays"
	otherwise encoding = "arrays nested otherwise than the shape"
	blob      encoding = "binary data"
	typed     encoding = "typed contents"
	shared    encoding = "a region of shared memory"
)

// tensor describes an input of a request or an output of a response. Its data are a part of the message, not a copy.
type tensor struct {
	name       []byte
	token      []byte // the name as encoded in the message
	datatype   string
	shape      []int64
	elements   int64 // product of the shape
	parameters []parameter
	encoding   encoding
	size       int64 // parameter binary_data_size of REST; -1 if not given
	data       []byte
	hasText    bool        // the data are JSON and contain strings
	odd        bool        // the data contain values that not every server accepts for the datatype
	others     []parameter // fields that the protocol does not define
}

// parameter is an entry of a parameters object, or a field of an object that is passed on as it is.
type parameter struct {
	key, token []byte // token is the key as encoded in the message
	value      []byte
}

// product returns the number of elements of a shape, or false if it exceeds an int64.
func product(shape []int64) (int64, bool) {
	n := uint64(1)
	for _, size := range shape {
		high, low := bits.Mul64(n, uint64(size))
		if high != 0 || low > math.MaxInt64 {
			return 0, false
		}
		n = low
	}
	return int64(n), true
}

// rows returns the first dimension, or 0 for a shape without dimensions.
func (t *tensor) rows() int64 {
	if len(t.shape) == 0 {
		return 0
	}
	return t.shape[0]
}

// checkBlob compares data in binary form with the shape. It returns what is wrong, or "" if nothing is.
func (t *tensor) checkBlob() string {
	if size := int64(datatypes[t.datatype].bytes); size > 0 {
		if n := int64(len(t.data)); n%size != 0 || n/size != t.elements {
			return "has " + strconv.FormatInt(n, 10) + " bytes, which is not a tensor of " + t.String()
		}
		return ""
	}
	rest := t.data
	for n := int64(0); n < t.elements; n++ {
		length := elementOfBytes(rest)
		if length < 0 {
			return "ends within element " + strconv.FormatInt(n, 10) + " of a tensor of " + t.String()
		}
		rest = rest[length:]
	}
	if len(rest) > 0 {
		return "has " + strconv.Itoa(len(rest)) + " bytes after the last element of a tensor of " + t.String()
	}
	return ""
}

// elementOfBytes returns how many bytes the first element of a BYTES tensor takes in binary form: four for its length, and then the element. It
// returns -1 if data do not hold all of it.
func elementOfBytes(data []byte) int {
	if len(data) < 4 {
		return -1
	}
	n := uint64(binary.LittleEndian.Uint32(data)) + 4
	if n > uint64(len(data)) {
		return -1
	}
	return int(n)
}

// cutBlob is cut for data in binary form. data may begin at any row of the tensor.
func (t *tensor) cutBlob(data []byte, rows int64) (part, rest []byte) {
	row := t.elements / t.rows()
	length := 0
	if size := int64(datatypes[t.datatype].bytes); size > 0 {
		length = int(size * row * rows)
	} else {
		for range row * rows {
			length += elementOfBytes(data[length:])
		}
	}
	return data[:length:length], data[length:]
}

// cut splits the data after the first rows. They must have been checked against the shape.
func (t *tensor) cut(rows int64) (part, rest []byte) {
	switch t.encoding {
	case nested:
		return cutArray(t.data, rows, t.hasText, true)
	case flat:
		return cutArray(t.data, rows*(t.elements/t.rows()), t.hasText, false)
	case typed:
		return t.cutContents(rows * (t.elements / t.rows()))
	}
	return t.cutBlob(t.data, rows)
}

// String returns the datatype and the shape, for error messages.
func (t *tensor) String() string { return t.datatype + " " + shapeText(t.shape) }

func shapeText(shape []int64) string {
	var text strings.Builder
	for i, size := range shape {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(strconv.FormatInt(size, 10))
	}
	return "[" + text.String() + "]"
}

// whyAlone returns why a request with this input must be sent alone, or nil. rows is the first dimension of the request's first input.
func (t *tensor) whyAlone(rows int64) *Error {
	switch {
	case t.rows() == 0:
		return &Error{"shape", "has no rows: " + shapeText(t.shape)}
	case t.elements == 0:
		return &Error{"shape", "has no elements: " + shapeText(t.shape)}
	case t.rows() != rows:
		return &Error{"shape", "has a first dimension other than that of inputs[0]: " + shapeText(t.shape)}
	case t.encoding == shared:
		return &Error{"parameters", "refer to shared memory"}
	case t.encoding == otherwise:
		return &Error{"data", otherwiseNested}
	case t.odd:
		return &Error{"data", "have values that not every server takes for " + t.datatype}
	case len(t.others) > 0:
		return &Error{clip(t.others[0].key), unknown}
	}
	return nil
}
