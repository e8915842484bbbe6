package testrel

import "slices"

// entry is one release that can be made by name.
type entry struct {
	name  string
	small bool
	group string // name of a group it belongs to, or ""
	make  func() *Release
}

// is reports whether name is the entry's or its group's.
func (e entry) is(name string) bool { return name != "" && (e.name == name || e.group == name) }

func entries() []entry {
	return append([]entry{
		{name: "dense-bf16", small: true, make: DenseBF16},
		{name: "kimi-mxfp4", small: true, make: KimiMXFP4},
		{name: "mixtral-single", small: true, make: MixtralSingle},
		{name: "qwen-fp8", small: true, make: QwenFP8},
		{name: "qwen-fused", small: true, make: QwenFused},
		{name: "twin-bf16", small: true, make: TwinBF16},
		{name: "vl-fused", small: true, make: VLFused},
		{name: "bench-fp8", group: benchGroup, make: BenchFP8},
		{name: "bench-gptq", group: benchGroup, make: BenchGPTQ},
		{name: "bench-mxfp4", group: benchGroup, make: BenchMXFP4},
		{name: "kimi-k3", make: KimiK3},
		{name: "qwen3-30b-a3b", make: Qwen3A3B},
		{name: "qwen3.8-max", make: Qwen38Max},
		{name: "qwen3.8-max-fp8", make: Qwen38MaxFP8},
	}, append(formatEntries(), familyEntries()...)...)
}

// Small makes the releases of a few megabytes each, one of every layout, sorted by name.
func Small() []*Release {
	var out []*Release
	for _, e := range entries() {
		if e.small {
			out = append(out, e.make())
		}
	}
	return out
}

// ByName makes the release of that name, or all of a group; nil if there is neither. Releases are expensive to make at real shapes
// (every header is rendered): keep them.
func ByName(name string) []*Release {
	var out []*Release
	for _, e := range entries() {
		if e.is(name) {
			out = append(out, e.make())
		}
	}
	return out
}

// Known reports whether there is a release or a group of that name, without making it.
func Known(name string) bool {
	for _, e := range entries() {
		if e.is(name) {
			return true
		}
	}
	return false
}

// Names are the names of all releases that belong to no group, those of [Small] first, and then of the groups.
func Names() []string {
	var out, groups []string
	for _, e := range entries() {
		if e.group == "" {
			out = append(out, e.name)
		} else if !slices.Contains(groups, e.group) {
			groups = append(groups, e.group)
		}
	}
	return append(out, groups...)
}
