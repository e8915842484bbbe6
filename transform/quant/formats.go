package quant

import "strings"

// TensorName joins a module's name and a suffix: "" is the module's name itself, a suffix that begins with "_" is appended as it is
// (experts.gate_up_proj + _blocks), any other after a dot (down_proj + weight).
func TensorName(module, suffix string) string {
	switch {
	case suffix == "":
		return module
	case suffix[0] == '_':
		return module + suffix
	}
	return module + "." + suffix
}

// Split takes a tensor's name apart into module and suffix, the longest known suffix first. A name without a known suffix is its own
// module, with suffix "".
func Split(name string) (module, suffix string) {
	for i := 1; i < len(name); i++ {
		switch name[i] {
		case '.':
			if knownSuffix[name[i+1:]] && !strings.HasPrefix(name[i+1:], "_") {
				return name[:i], name[i+1:]
			}
		case '_':
			if knownSuffix[name[i:]] {
				return name[:i], name[i:]
			}
		}
	}
	return name, ""
}

var knownSuffix = map[string]bool{}

// Suffixes lists every suffix that marks a tensor of a group, longest first.
func Suffixes() []Suffix { return nil }

// Facts names the suffixes of g whose content Recognise needs in Tensor.Data before it can answer.
func Facts(g Group) []string { return nil }

// Recognise finds the format of a group. It returns a match; or nil and no error for a group that is not quantized; or nil and a
// *[Refused] for one that is but cannot be dequantized exactly.
func Recognise(g Group) (*Match, error) { return nil, nil }
