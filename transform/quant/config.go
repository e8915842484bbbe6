package quant

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

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
	// Problem is what is impossible in the declaration ("group_size 0"); every quantized group is refused for it.
	Problem string

	fields   map[string]json.RawMessage // of Raw, parsed once
	byModule bool
}

// place is where a declaration may stand.
type place struct {
	file   string
	path   []string // keys from the top
	method string   // if the declaration names none itself
}

// places lists them in the order in which they are asked: the first that is there wins.
func places() []place {
	var list []place
	for _, parent := range [][]string{nil, {"text_config"}, {"llm_config"}, {"language_config"}, {"thinker_config", "text_config"}} {
		for _, key := range []string{"quantization_config", "compression_config"} {
			list = append(list, place{"config.json", append(parent[:len(parent):len(parent)], key), ""})
		}
	}
	return append(list,
		place{"config.json", []string{"quantization"}, "mlx"},
		place{"config.json", []string{"dfloat11_config"}, "dfloat11"},
		place{"hf_quant_config.json", []string{"quantization"}, "modelopt"},
		place{"quantize_config.json", nil, "gptq"},
		place{"quant_config.json", nil, "awq"},
		place{"params.json", []string{"quantization"}, "mistral"},
	)
}

// maxConfig bounds a file that is parsed.
const maxConfig = 64 << 20

// FindConfig reads what a release declares about quantization. files are the contents of its small JSON files by path
// (config.json, hf_quant_config.json, quantize_config.json, quant_config.json, params.json); those missing are left out. A release that
// declares nothing gives a zero Config. An error means that a file is not JSON; impossible values are in Config.Problem.
func FindConfig(files map[string][]byte) (Config, error) {
	for _, p := range places() {
		content, ok := files[p.file]
		if !ok {
			continue
		}
		if len(content) > maxConfig {
			return Config{}, fmt.Errorf("%s: %d bytes are too many for a configuration", p.file, len(content))
		}
		raw := json.RawMessage(plainJSON(content))
		if !json.Valid(raw) {
			return Config{}, fmt.Errorf("%s: not JSON", p.file)
		}
		for _, key := range p.path {
			raw = object(raw)[key]
		}
		if fields := object(raw); len(fields) > 0 {
			c := Config{Raw: raw, Source: strings.Join(append([]string{p.file}, p.path...), " "), Method: p.method, fields: fields}
			c.read()
			return c, nil
		}
	}
	return Config{}, nil
}

// object is the members of a JSON object, nil for anything else.
func object(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

// plainJSON replaces the words NaN, Infinity and -Infinity, which Python writes, by null.
func plainJSON(b []byte) []byte {
	out := make([]byte, 0, len(b))
	quoted := false
	for i := 0; i < len(b); i++ {
		word := ""
		switch {
		case b[i] == '"':
			quoted = !quoted
		case quoted && b[i] == '\\' && i+1 < len(b):
			out = append(out, b[i])
			i++
		case !quoted:
			word = pythonWord(b[i:])
		}
		if word != "" {
			out, i = append(out, "null"...), i+len(word)-1
			continue
		}
		out = append(out, b[i])
	}
	return out
}

func pythonWord(b []byte) string {
	for _, w := range []string{"NaN", "Infinity", "-Infinity"} {
		if len(b) >= len(w) && string(b[:len(w)]) == w {
			return w
		}
	}
	return ""
}

// read fills the fields that every format shares, from the names that the methods give them.
func (c *Config) read() {
	if s := c.str("quant_method"); s != "" {
		c.Method = s
	} else if c.Method == "" {
		c.Method = "unnamed"
	}
	c.readWeights(c.fields)
	for key, raw := range c.fields {
		c.byModule = c.byModule || strings.Contains(key, ".") && len(object(raw)) > 0
	}
	for _, weights := range c.ctWeights() {
		c.readWeights(weights)
	}
	if len(c.ctWeights()) > 1 && !c.uniform() {
		c.Bits, c.GroupSize, c.Block = 0, 0, [2]int{}
	}
}

// readWeights reads bits, group size and block size of one description.
func (c *Config) readWeights(f map[string]json.RawMessage) {
	for _, key := range []string{"bits", "num_bits", "w_bit", "weight_bits"} {
		if n, ok := c.integer(f, key, 1, 16); ok {
			c.Bits = n
		}
	}
	for _, key := range []string{"group_size", "q_group_size"} {
		if n, ok := c.integer(f, key, -1, 1<<20); ok && n != 0 {
			c.GroupSize = n
		} else if ok {
			c.problem(key, f[key])
		}
	}
	for _, key := range []string{"weight_block_size", "block_structure"} {
		c.readBlock(f, key)
	}
}

// readBlock reads a block size: two integers, or "128x128".
func (c *Config) readBlock(f map[string]json.RawMessage, key string) {
	raw, ok := f[key]
	if !ok || string(raw) == "null" {
		return
	}
	var block []int
	var text string
	if json.Unmarshal(raw, &text) == nil {
		for _, part := range strings.Split(text, "x") {
			n, err := strconv.Atoi(part)
			if err != nil {
				n = 0
			}
			block = append(block, n)
		}
	} else if json.Unmarshal(raw, &block) != nil {
		block = nil
	}
	if len(block) != 2 || block[0] < 1 || block[0] > 1<<16 || block[1] < 1 || block[1] > 1<<16 {
		c.problem(key, raw)
		return
	}
	c.Block = [2]int{block[0], block[1]}
}

// integer is an integer member within bounds; one out of bounds or of another kind is a problem. null is not there.
func (c *Config) integer(f map[string]json.RawMessage, key string, low, high int) (int, bool) {
	raw, ok := f[key]
	if !ok || string(raw) == "null" {
		return 0, false
	}
	var n int
	if json.Unmarshal(raw, &n) != nil || n < low || n > high {
		c.problem(key, raw)
		return 0, false
	}
	return n, true
}

func (c *Config) problem(key string, raw json.RawMessage) {
	if c.Problem == "" {
		c.Problem = fmt.Sprintf("%s declares %s %.40s, which is impossible", c.Source, key, raw)
	}
}

// ByModule says whether the declaration has settings of their own for some modules (MLX: members named by a path), so that equal tensors of two
// modules may have to be read differently.
func (c *Config) ByModule() bool { return c.byModule }

// members are the fields of Raw.
func (c *Config) members() map[string]json.RawMessage {
	if c.fields == nil {
		return object(c.Raw)
	}
	return c.fields
}

// str is a string member, "" if there is none.
func (c *Config) str(key string) string { return text(c.members(), key) }

// text is a string member of f.
func text(f map[string]json.RawMessage, key string) string {
	var s string
	if json.Unmarshal(f[key], &s) != nil {
		return ""
	}
	return s
}

// ctWeights are the weight descriptions of compressed-tensors' config groups.
func (c *Config) ctWeights() []map[string]json.RawMessage {
	var list []map[string]json.RawMessage
	for _, g := range object(c.members()["config_groups"]) {
		if w := object(object(g)["weights"]); w != nil {
			list = append(list, w)
		}
	}
	return list
}

// uniform says whether all config groups describe weights of the same bits, groups and blocks.
func (c *Config) uniform() bool {
	list := c.ctWeights()
	for _, w := range list[1:] {
		for _, key := range []string{"num_bits", "group_size", "block_structure"} {
			if string(w[key]) != string(list[0][key]) {
				return false
			}
		}
	}
	return true
}
