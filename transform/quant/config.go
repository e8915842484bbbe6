package quant

// Config is what the release's configuration declares about quantization. Shapes and sibling tensors come first; Config only settles
// what they cannot. Zero values mean "not said". [FindConfig] makes one.
type Config struct {
	Method    string // quant_method: fp8, compressed-tensors, gptq, awq, ...
	Bits      int
	GroupSize int // -1: the whole row
	Block     [2]int
	// Raw is the quantization_config object (JSON), for what only one format asks.
	Raw []byte
	// Source says where it was found: "config.json quantization_config".
	Source string
	// ScaledF8 says that some F8 tensor of the release has a scale, so that one without is suspect. The caller sets it.
	ScaledF8 bool
}

// FindConfig reads what a release declares about quantization. files are the contents of its small JSON files by path
// (config.json, hf_quant_config.json, quantize_config.json, quant_config.json, params.json); those missing are left out. A release that
// declares nothing gives a zero Config. An error means that a declaration is there and malformed.
func FindConfig(files map[string][]byte) (Config, error) { return Config{}, nil }
