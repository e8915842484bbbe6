package transform

import (
	"cmp"
	"context"
	"slices"

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
	s.CompareSkips()
	seen := make([]bool, len(in.next))
	for i := range in.next {
		if seen[i] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
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

// oddities are what whoever reads dequantized weights should know: a declaration that the tensors do not bear out, and what lies beside the
// values that they mean. Skip lists, which take every name, are left to Survey.
func (in *input) oddities() []string {
	if in.quantErr != nil {
		return nil // no module is recognised, and the absent views say why
	}
	s := quant.NewSurvey(in.quantConfig)
	for _, k := range in.modulesByKind() {
		m, err := in.module(k.first)
		name, _ := quant.Split(in.source(k.first).Name)
		if err != nil {
			s.AddAlike(name, k.modules, nil, err)
		} else {
			s.AddAlike(name, k.modules, m.match, nil)
		}
	}
	return append(s.Disagreements(), s.Warnings()...)
}

// alikeModules are the modules of one kind.
type alikeModules struct {
	first   int32 // a tensor of the first of them
	modules int
}

// modulesByKind counts the modules of each kind, in the order of their first ones; one that is recognised by itself counts alone.
func (in *input) modulesByKind() []alikeModules {
	var out []alikeModules
	at := map[uint32]int{}
	kinds := in.kinds()
	for i, next := range in.next {
		if int(next) > i {
			continue // each module has one tensor whose next is not behind it
		}
		k, ok := at[kinds[i]]
		if !ok || kinds[i] == single {
			k = len(out)
			at[kinds[i]] = k
			out = append(out, alikeModules{first: next})
		}
		out[k].modules++
		out[k].first = min(out[k].first, next)
	}
	slices.SortFunc(out, func(a, b alikeModules) int { return cmp.Compare(a.first, b.first) })
	return out
}
