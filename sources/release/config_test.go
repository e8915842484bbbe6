package release

import (
	"reflect"
	"strings"
	"testing"
)

// TestConfig reads configurations of every nesting.
func TestConfig(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Declared
		notes      int
	}{
		{"mixtral", `{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_local_experts": 8, "torch_dtype": "bfloat16", "tie_word_embeddings": false, "rope_scaling": null}`,
			Declared{ModelType: "mixtral", DType: "bfloat16", Hidden: 4096, Layers: 32, Experts: 8, Intermediate: 14336}, 0},
		{"multimodal", `{"model_type": "qwen3_5_moe", "hidden_size": 1, "vision_config": {"hidden_size": 7, "num_hidden_layers": 3}, "text_config": {"model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_experts": 180, "moe_intermediate_size": 512, "num_hidden_layers": 40}, "tie_word_embeddings": true}`,
			Declared{ModelType: "qwen3_5_moe_text", Hidden: 2048, Layers: 40, Experts: 180, MoEIntermediate: 512, TiedEmbeddings: true}, 0},
		{"dbrx", `{"d_model": 6144, "n_layers": 40, "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}}`,
			Declared{Hidden: 6144, Layers: 40, Experts: 16, MoEIntermediate: 10752}, 0},
		{"best key wins, in any order", `{"num_local_experts": 3, "num_experts": 4, "n_routed_experts": 5, "torch_dtype": "float16", "dtype": "bfloat16"}`, Declared{Experts: 4, DType: "bfloat16"}, 0},
		{"last of two equal keys wins", `{"num_experts": 3, "num_experts": 4}`, Declared{Experts: 4}, 0},
		{"quantization wherever it nests", `{"quantization_config": {"a": [1, NaN]}, "text_config": {"quantization_config": {}, "x": {"compression_config": {"b": "}"}}}, "quantization": {"bits": 4}, "dfloat11_config": {"v": 1}}`,
			Declared{Quantization: []Quantization{{"config.json:quantization_config", []byte(`{"a": [1, NaN]}`)}, {"config.json:text_config.quantization_config", []byte(`{}`)},
				{"config.json:text_config.x.compression_config", []byte(`{"b": "}"}`)}, {"config.json:quantization", []byte(`{"bits": 4}`)}, {"config.json:dfloat11_config", []byte(`{"v": 1}`)}}}, 0},
		{"a quantization that is no object", `{"quantization_config": "fp8", "quantization": null}`, Declared{}, 0},
		{"Python's literals", `{"rope_theta": Infinity, "x": -Infinity, "y": [NaN], "hidden_size": 8}`, Declared{Hidden: 8}, 0},
		{"numbers that are none", `{"hidden_size": 8.5, "num_hidden_layers": -1, "num_experts": "8", "intermediate_size": 1e3, "moe_intermediate_size": 18446744073709551616, "model_type": 3, "dtype": {"a": 1}}`, Declared{}, 6},
		{"escapes", `{"model_type": "a\u00e9\ud83d\ude00\"\\\/\b\f\n\r\t"}`, Declared{ModelType: "aé😀\"\\/\b\f\n\r\t"}, 0},
		{"long text", `{"model_type": "` + strings.Repeat("x", 1000) + `"}`, Declared{}, 1},
		{"empty", `{}`, Declared{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, odd, err := readConfig("config.json", []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(d, c.want) {
				t.Errorf("got  %+v\nwant %+v", d, c.want)
			}
			if len(odd) != c.notes {
				t.Errorf("notes %q, want %d", odd, c.notes)
			}
		})
	}
}

// TestBadConfig has texts that are no configuration.
func TestBadConfig(t *testing.T) {
	for _, text := range []string{"", "null", "[]", "1", `{"a": }`, `{"a": 1,}`, `{a: 1}`, `{"a": 01}`, `{"a": 1.}`, `{"a": .5}`, `{"a": +1}`, `{"a": 1e}`, `{"a": nan}`, `{"a": --1}`, `{"a": "\x"}`, `{"a": "\u12"}`,
		`{"a": "\ud800x"}`, `{"a": "\udc00"}`, `{"a": "` + "\x01" + `"}`, `{"a": "` + "\xff" + `"}`, `{"a": 1} x`, `{"a": [1 2]}`, `{"a" 1}`, `{"a": 1 "b": 2}`, strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70), strings.Repeat(`{"a":`, 70) + "{}" + strings.Repeat("}", 70),
		`{"x": ` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}", "\ufeff{}", `{"a": tru}`, `{"a": "`, `{"a": "\`, `{"a": "\u`} {
		if d, _, err := readConfig("config.json", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), "config.json at byte ") {
			t.Errorf("%.60q: %+v, error %v", text, d, err)
		}
	}
}

// TestConfigFiles reads the files beside config.json.
func TestConfigFiles(t *testing.T) {
	rel := newFake().shard(t, "model.safetensors", bf16("x", 1)).file("params.json", `{"dim": 5120, "n_layers": 40, "moe": {"num_experts": 4}}`).
		file("hf_quant_config.json", ` {"quantization": {"quant_algo": "NVFP4"}} `).file("quantize_config.json", `{"bits": 4`).file("quant_config.json", `{"w_bit": 4}`).open(t)
	if d := rel.Declared; d.Hidden != 5120 || d.Layers != 40 || d.Experts != 4 || len(d.Quantization) != 2 || d.Quantization[0].Where != "hf_quant_config.json" || d.Quantization[1].Where != "quant_config.json" {
		t.Errorf("%+v", d)
	}
	if len(rel.Notes) != 1 || !strings.HasPrefix(rel.Notes[0], "quantize_config.json at byte 10") {
		t.Errorf("notes %q", rel.Notes)
	}
	if rel.Config != nil || len(rel.Files) != 4 {
		t.Errorf("config %q, %d files", rel.Config, len(rel.Files))
	}
	f := newFake().shard(t, "model.safetensors", bf16("x", 1)).file("config.json", "{}")
	f.sizes["config.json"] = maxConfig + 1
	if rel := f.open(t); rel.Config != nil || len(rel.Notes) != 1 {
		t.Errorf("a config of %d bytes: %q, notes %q", maxConfig+1, rel.Config, rel.Notes)
	}
}
