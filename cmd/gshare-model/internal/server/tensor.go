package server

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
)

// Tensor describes an input or output. A dimension of -1 stands for any size.
type Tensor struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

// tensor is a tensor with its elements in row-major order, little endian. Each element of datatype BYTES is preceded by its length in 4 bytes.
type tensor struct {
	Tensor
	data []byte
}

// widths maps each datatype to the size of an element in bytes. BYTES has no fixed size.
var widths = map[string]int{
	"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2, "UINT32": 4, "INT32": 4, "FP32": 4,
	"UINT64": 8, "INT64": 8, "FP64": 8, "BYTES": 0,
}

// maxElements is the largest number of elements in a tensor, so that sizes in bytes cannot overflow.
const maxElements = 1 << 32

// elements returns the number of elements in a tensor of this shape.
func elements(shape []int64) (int, error) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > maxElements {
			return 0, fmt.Errorf("shape %v: %d is no dimension", shape, d)
		}
		if n *= d; n > maxElements {
			return 0, fmt.Errorf("shape %v has more than %d elements", shape, int64(maxElements))
		}
	}
	return int(n), nil
}

// rows splits the data into rows, of which the first dimension is the number.
func (t *tensor) rows() ([][]byte, error) {
	n, err := elements(t.Shape)
	if err != nil {
		return nil, err
	}
	if len(t.Shape) == 0 || t.Shape[0] == 0 {
		return nil, fmt.Errorf("input %q has no rows", t.Name)
	}
	width, known := widths[t.Datatype]
	if !known {
		return nil, fmt.Errorf("input %q has the unknown datatype %q", t.Name, t.Datatype)
	}
	rows := make([][]byte, t.Shape[0])
	rest, each := t.data, n/len(rows)
	for i := range rows {
		length := each * width
		if width == 0 {
			if length, err = bytesLength(rest, each); err != nil {
				return nil, fmt.Errorf("input %q: %w", t.Name, err)
			}
		}
		if length > len(rest) {
			return nil, fmt.Errorf("input %q has %d bytes, too few for its shape %v", t.Name, len(t.data), t.Shape)
		}
		rows[i], rest = rest[:length], rest[length:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("input %q has %d bytes, too many for its shape %v", t.Name, len(t.data), t.Shape)
	}
	return rows, nil
}

// bytesLength returns how many bytes n elements of BYTES take.
func bytesLength(data []byte, n int) (length int, err error) {
	for range n {
		if len(data)-length < 4 {
			return 0, io.ErrUnexpectedEOF
		}
		one := int(binary.LittleEndian.Uint32(data[length:]))
		if one > len(data)-length-4 {
			return 0, io.ErrUnexpectedEOF
		}
		length += 4 + one
	}
	return length, nil
}

// fromJSON converts the elements of a JSON array, nested or not.
func fromJSON(datatype string, text json.RawMessage) (data []byte, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		if delimiter, ok := token.(json.Delim); ok {
			if delimiter == '{' || delimiter == '}' {
				return nil, fmt.Errorf("an object is no element")
			}
			continue
		}
		if data, err = appendElement(data, datatype, token); err != nil {
			return nil, err
		}
	}
}

// appendElement appends one element, given as a JSON token.
func appendElement(data []byte, datatype string, token json.Token) ([]byte, error) {
	switch value := token.(type) {
	case bool:
		if datatype == "BOOL" {
			return append(data, map[bool]byte{true: 1}[value]), nil
		}
	case string:
		if datatype == "BYTES" {
			return append(binary.LittleEndian.AppendUint32(data, uint32(len(value))), value...), nil
		}
	case json.Number:
		return appendNumber(data, datatype, value.String())
	}
	return nil, fmt.Errorf("%v is no element of %s", token, datatype)
}

func appendNumber(data []byte, datatype, text string) ([]byte, error) {
	bits := 8 * widths[datatype]
	var value uint64
	var err error
	switch datatype {
	case "INT8", "INT16", "INT32", "INT64":
		var n int64
		n, err = strconv.ParseInt(text, 10, bits)
		value = uint64(n)
	case "UINT8", "UINT16", "UINT32", "UINT64":
		value, err = strconv.ParseUint(text, 10, bits)
	case "FP32":
		var f float64
		f, err = strconv.ParseFloat(text, 32)
		value = uint64(math.Float32bits(float32(f)))
	case "FP64":
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		value = math.Float64bits(f)
	default:
		err = fmt.Errorf("%s is no element of %s", text, datatype)
	}
	if err != nil {
		return nil, err
	}
	var all [8]byte
	binary.LittleEndian.PutUint64(all[:], value)
	return append(data, all[:widths[datatype]]...), nil
}

// KnownDatatype reports whether the Open Inference Protocol has a datatype of this name.
func KnownDatatype(name string) bool {
	_, known := widths[name]
	return known
}
