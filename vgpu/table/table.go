// Package table reads CSV text by the names of its columns.
package table

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// Row is one record of CSV text.
type Row struct {
	Line   int // on which the record begins, from 1
	Fields []string
	header []string // names of the columns, trimmed; nil for rows of Records
}

// Column returns the index of the named column, or -1.
func (r *Row) Column(name string) int { return slices.Index(r.header, name) }

// Text returns the field of a column without surrounding spaces, or "" if there is no such column.
func (r *Row) Text(column string) string {
	if i := r.Column(column); i >= 0 {
		return strings.TrimSpace(r.Fields[i])
	}
	return ""
}

// Records iterates over the records of CSV text, which must all have as many fields as the first. It stops at the first error, which names
// the line. The fields of a record are valid only until the next record.
func Records(in io.Reader) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		r := csv.NewReader(in)
		r.ReuseRecord = true
		for {
			fields, err := r.Read()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Row{}, err)
				return
			}
			line, _ := r.FieldPos(0)
			if !yield(Row{Line: line, Fields: fields}, nil) {
				return
			}
		}
	}
}

// Rows iterates over the records below the header of CSV text. It yields an error if a named column is missing.
func Rows(in io.Reader, columns ...string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var header []string
		for r, err := range Records(in) {
			switch {
			case err != nil:
				yield(r, err)
				return
			case header == nil:
				for _, name := range r.Fields {
					header = append(header, strings.TrimSpace(name))
				}
				missing := slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return slices.Contains(header, c) })
				if len(missing) > 0 {
					yield(r, fmt.Errorf("line %d: no column %s", r.Line, strings.Join(missing, ", ")))
					return
				}
				continue
			}
			r.header = header
			if !yield(r, nil) {
				return
			}
		}
		if header == nil {
			yield(Row{}, fmt.Errorf("read header: %w", io.EOF))
		}
	}
}
