package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// memoryStorage is a Prometheus storage that holds series in memory by their labels.
type memoryStorage map[string]*stored

type stored struct {
	labels  labels.Labels
	samples []chunks.Sample
}

type sample struct {
	t int64
	v float64
}

func (sample) ST() int64                     { return 0 }
func (s sample) T() int64                    { return s.t }
func (s sample) F() float64                  { return s.v }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// loadScrapes parses scrapes, which must be in the order of their times, into a storage.
func loadScrapes(scrapes []scrape) (memoryStorage, error) {
	all := memoryStorage{}
	for _, s := range scrapes {
		if err := all.add(s); err != nil {
			return nil, fmt.Errorf("scrape at %v: %w", s.Time, err)
		}
	}
	return all, nil
}

func (m memoryStorage) add(s scrape) error {
	p := textparse.NewPromParser([]byte(s.Text), labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var l labels.Labels
		p.Labels(&l)
		b := labels.NewBuilder(l)
		for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
			if l.Get(name) == "" { // as with honor_labels, the series' own label wins
				b.Set(name, s.Labels[name])
			}
		}
		l = b.Labels()
		if m[l.String()] == nil {
			m[l.String()] = &stored{labels: l}
		}
		m[l.String()].samples = append(m[l.String()].samples, sample{int64(s.Time * 1000), value})
	}
}

func (m memoryStorage) Querier(int64, int64) (storage.Querier, error) { return querier{m}, nil }

// querier implements storage.Querier. Of its methods only Select is called when queries are evaluated.
type querier struct{ memoryStorage }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, key := range slices.Sorted(maps.Keys(q.memoryStorage)) {
		s := q.memoryStorage[key]
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			continue
		}
		found = append(found, storage.NewListSeries(s.labels, s.samples))
	}
	return &seriesSet{series: found, at: -1}
}

// seriesSet implements storage.SeriesSet, an iterator over series.
type seriesSet struct {
	series []storage.Series
	at     int
}

func (s *seriesSet) Next() bool                      { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series              { return s.series[s.at] }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (querier) Close() error { return nil }
