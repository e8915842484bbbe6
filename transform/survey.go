package transform

import (
	"context"

	"weightfs/sources/release"
	"weightfs/transform/quant"
)

// Survey says of every module of a release how it is quantized and how that was recognised, and where the release's declaration
// disagrees with its tensors. It reads the small tensors that shapes depend on.
func Survey(ctx context.Context, r *release.Release) (*quant.Survey, error) {
	in := newInput(r)
	if err := in.fetchFacts(ctx); err != nil {
		return nil, err
	}
	s := quant.NewSurvey(in.quantConfig)
	seen := make([]bool, len(in.next))
	for i := range in.next {
		if seen[i] {
			continue
		}
		for k := int32(i); !seen[k]; k = in.next[k] {
			seen[k] = true
		}
		m, err := in.module(int32(i))
		if err != nil {
			m = in.siblings(int32(i))
			_, err = quant.Recognise(in.groupOf(m))
		}
		s.Add(m.name, m.match, err)
	}
	return s, nil
}
