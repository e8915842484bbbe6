package quant

import (
	"slices"
	"sort"
	"strings"
)

// format is one row of the table of formats.
type format struct {
	name string
	// declared are the quantization methods whose releases have it, as the configuration names them. Only [Survey] asks.
	declared []string
	// data are the suffixes under which the weights may stand, sides those of every tensor that belongs to them, facts the sides
	// (or data) whose content match needs.
	data, sides, facts []string
	// kept are suffixes that belong to the group but stay in a BF16 view.
	kept []string
	// match recognises a group by its tensors. It returns nil, nil if the group is of another format.
	match func(m *matcher) (*Match, error)
	// needs says which facts a group needs; nil: all that it has.
	needs func(m *matcher) []string
}

// table lists every format, in the order in which they are tried: those with telling siblings first.
func table() []format {
	return []format{
		refusedFormat(),
		torchaoFormat(),
		hqqFormat(),
		comfyFormat(),
		bitnetFormat(),
		gptOSSFormat(),
		nvfp4Format(),
		mxfp6Format(),
		mxfp4Format(),
		modelOptInt4Format(),
		deepseekFP4Format(),
		ctPackFormat(),
		bnb4Format(),
		bnb8Format(),
		gptqFormat(),
		awqFormat(),
		mlxFormat(),
		fp8Format(),
		activationFormat(),
		leftoverFormat(),
	}
}

// formats is the table; it never changes.
var formats = table()

// ending is how a suffix stands at the end of a name.
type ending struct{ text, suffix string }

// endings are those of all suffixes but "" by their last byte, longest first.
var endings = func() (by [256][]ending) {
	for _, s := range Suffixes() {
		if text := TensorName("x", s.Suffix)[1:]; text != "" {
			last := text[len(text)-1]
			by[last] = append(by[last], ending{text, s.Suffix})
		}
	}
	for _, ends := range by {
		slices.SortStableFunc(ends, func(a, b ending) int { return len(b.text) - len(a.text) })
	}
	return by
}()

// TensorName joins a module's name and a suffix: "" is the module's name itself, a suffix that begins with "_" or "." is appended as it is
// (experts.gate_up_proj + _blocks, down_proj + ._weight_qdata), any other after a dot (down_proj + weight).
func TensorName(module, suffix string) string {
	switch {
	case suffix == "":
		return module
	case suffix[0] == '_' || suffix[0] == '.' || module == "":
		return module + suffix
	}
	return module + "." + suffix
}

// Split takes a tensor's name apart into module and suffix, the longest known suffix first. A name without a known suffix is its own
// module, with suffix "".
func Split(name string) (module, suffix string) {
	if name == "" {
		return "", ""
	}
	for _, e := range endings[name[len(name)-1]] {
		switch n := len(name) - len(e.text); {
		case n > 0 && name[n:] == e.text:
			return name[:n], e.suffix
		case n == -1 && name == e.suffix && e.text[0] == '.':
			return "", e.suffix
		}
	}
	return name, ""
}

// Suffixes lists every suffix that marks a tensor of a group, longest first, then by name. "" is among them.
func Suffixes() []Suffix {
	bySuffix := map[string]*Suffix{}
	add := func(name, suffix string, data, fact bool) {
		s := bySuffix[suffix]
		if s == nil {
			s = &Suffix{Suffix: suffix}
			bySuffix[suffix] = s
		}
		s.Data, s.Fact = s.Data || data, s.Fact || fact
		if !slices.Contains(s.Formats, name) {
			s.Formats = append(s.Formats, name)
		}
	}
	for _, f := range formats {
		for _, d := range f.data {
			add(f.name, d, true, false)
		}
		for _, d := range f.sides {
			add(f.name, d, false, false)
		}
		for _, d := range f.kept {
			add(f.name, d, false, false)
		}
		for _, d := range f.facts {
			add(f.name, d, false, true)
		}
	}
	out := make([]Suffix, 0, len(bySuffix))
	for _, s := range bySuffix {
		out = append(out, *s)
	}
	sort.Slice(out, func(i, j int) bool {
		if len(out[i].Suffix) != len(out[j].Suffix) {
			return len(out[i].Suffix) > len(out[j].Suffix)
		}
		return out[i].Suffix < out[j].Suffix
	})
	return out
}

// Facts names the suffixes of g, sorted, whose content Recognise needs in Tensor.Data before it can answer.
func Facts(g Group) []string {
	var out []string
	for i := range formats {
		f := &formats[i]
		if !hasAny(g, f.data) {
			continue
		}
		wanted := f.facts
		if f.needs != nil {
			wanted = f.needs(&matcher{group: &g, format: f})
		}
		for _, s := range wanted {
			if _, ok := g.Tensors[s]; ok && !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	sort.Strings(out)
	return out
}

func hasAny(g Group, suffixes []string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { _, ok := g.Tensors[s]; return ok })
}

// Recognise finds the format of a group. It returns a match; or nil and no error for a group that is not quantized; or nil and a
// *[Refused] for one that is but cannot be dequantized exactly.
func Recognise(g Group) (*Match, error) {
	for i := range formats {
		m := &matcher{group: &g, format: &formats[i]}
		match, err := m.format.match(m)
		if err != nil {
			return nil, err
		}
		if match == nil {
			continue
		}
		if g.Config.Problem != "" && match.Codec != nil {
			return m.refuse(match.Inputs[0], "%s", g.Config.Problem)
		}
		if reason := refusedMethod(g.Config.Method); reason != "" && match.Codec != nil {
			return m.refuse(match.Inputs[0], "%s", reason)
		}
		return match, nil
	}
	return nil, nil
}

// names joins suffixes as a sentence has them.
func joinSuffixes(suffixes []string) string {
	named := make([]string, len(suffixes))
	for i, s := range suffixes {
		named[i] = s
		if s == "" {
			named[i] = "the fused parameter"
		}
	}
	return strings.Join(named, " + ")
}
