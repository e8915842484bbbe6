package release

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// maxConfig bounds config.json and each quantization side file.
const maxConfig = 16 << 20

// Declared is what config.json (params.json where there is none) and the quantization side files say. Nothing is decided by it where
// names and shapes can: it is printed and checked against. Zero values mean "not said".
type Declared struct {
	ModelType       string // model_type of the language model
	DType           string // dtype or torch_dtype
	Hidden          int64  // hidden_size
	Layers          int64  // num_hidden_layers: layers from this number on are multi-token prediction
	Experts         int64  // num_experts, num_local_experts, n_routed_experts, moe_num_experts
	Intermediate    int64  // intermediate_size
	MoEIntermediate int64  // moe_intermediate_size
	TiedEmbeddings  bool   // tie_word_embeddings
	// Quantization is every description of a quantization that was found: the one in config.json that applies to the language model
	// first, side files last.
	Quantization []Quantization
}

// Quantization is one description of a quantization, as it stands.
type Quantization struct {
	Where string // config.json:text_config.quantization_config, or the side file's name
	Raw   []byte // a JSON object
}

// quantKeys are the keys of config.json that hold a quantization: transformers', old compressed-tensors', MLX's, DFloat11's.
var quantKeys = []string{"quantization_config", "compression_config", "quantization", "dfloat11_config"}

// quantFiles are the side files that describe one: ModelOpt's, old GPTQ's, old AWQ's.
var quantFiles = []string{"hf_quant_config.json", "quantize_config.json", "quant_config.json"}

// nests are the keys of objects in which the language model's own facts stand. Deeper ones win.
var nests = []string{"text_config", "language_config", "llm_config", "thinker_config", "ffn_config", "moe"}

// field is a position in configReader.values.
type field int

const (
	fieldModelType field = iota
	fieldDType
	fieldHidden
	fieldLayers
	fieldExperts
	fieldIntermediate
	fieldMoEIntermediate
	fieldTied
	numFields
)

// fieldKeys are the keys of each field, the best first.
var fieldKeys = [numFields][]string{
	fieldModelType:       {"model_type"},
	fieldDType:           {"dtype", "torch_dtype"},
	fieldHidden:          {"hidden_size", "d_model", "n_embd", "dim"},
	fieldLayers:          {"num_hidden_layers", "n_layers", "n_layer", "num_layers"},
	fieldExperts:         {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"},
	fieldIntermediate:    {"intermediate_size", "inter_dim", "hidden_dim"},
	fieldMoEIntermediate: {"moe_intermediate_size", "moe_ffn_hidden_size", "ffn_hidden_size", "moe_inter_dim", "expert_hidden_dim"},
	fieldTied:            {"tie_word_embeddings"},
}

// configReader collects facts from one JSON file.
type configReader struct {
	scanner
	file   string
	values [numFields][]byte // raw JSON
	ranks  [numFields]int    // how good values is: deeper beats shallower, then the earlier key
	quant  []Quantization
}

// readConfig reads config.json or params.json. A file that is not JSON is an error, and what was read before the fault is dropped.
func readConfig(file string, text []byte) (Declared, []string, error) {
	r := configReader{scanner: scanner{b: text, lenient: true}, file: file}
	err := r.walk("", true, 0)
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return Declared{}, nil, fmt.Errorf("%s %w", file, err)
	}
	d, odd := r.declared()
	return d, odd, nil
}

// walk takes an object. facts says that it describes the language model.
func (r *configReader) walk(path string, facts bool, depth int) error {
	if depth > maxNesting {
		return r.fail("nested deeper than %d", maxNesting)
	}
	return r.object(func(k []byte) error {
		key := string(k)
		if r.peek() != '{' {
			text, err := r.raw(depth + 1)
			if err == nil && facts {
				r.fact(key, text, depth)
			}
			return err
		}
		if !slices.Contains(quantKeys, key) {
			return r.walk(path+key+".", facts && slices.Contains(nests, key), depth+1)
		}
		text, err := r.raw(depth + 1)
		if err == nil {
			r.quant = append(r.quant, Quantization{Where: r.file + ":" + path + key, Raw: bytes.Clone(text)})
		}
		return err
	})
}

// fact keeps the value of a key if it is one of a field's and no better one is known. Of equal keys the last wins, as in Python.
func (r *configReader) fact(key string, text []byte, depth int) {
	if string(text) == "null" {
		return
	}
	for f, keys := range fieldKeys {
		i := slices.Index(keys, key)
		if i < 0 {
			continue
		}
		if rank := 100*(depth+1) - i; rank >= r.ranks[f] {
			r.values[f], r.ranks[f] = text, rank
		}
	}
}

func (r *configReader) declared() (d Declared, odd []string) {
	note := func(f field) {
		odd = append(odd, fmt.Sprintf("%s: %s is %s, which is not what it should be; ignored", r.file, fieldKeys[f][0], quoted(string(r.values[f]))))
	}
	number := func(f field) int64 {
		if r.values[f] == nil {
			return 0
		}
		v, err := strconv.ParseInt(string(r.values[f]), 10, 64)
		if err != nil || v < 0 || v > 1<<40 {
			note(f)
			return 0
		}
		return v
	}
	text := func(f field) string {
		if r.values[f] == nil {
			return ""
		}
		s := scanner{b: r.values[f]}
		v, err := s.str()
		if err != nil || len(v) > 256 {
			note(f)
			return ""
		}
		return string(v)
	}
	return Declared{
		ModelType:       text(fieldModelType),
		DType:           text(fieldDType),
		Hidden:          number(fieldHidden),
		Layers:          number(fieldLayers),
		Experts:         number(fieldExperts),
		Intermediate:    number(fieldIntermediate),
		MoEIntermediate: number(fieldMoEIntermediate),
		TiedEmbeddings:  string(r.values[fieldTied]) == "true",
		Quantization:    r.quant,
	}, odd
}
