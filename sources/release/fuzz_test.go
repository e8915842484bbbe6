package release

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"weightfs/sources/safetensors"
)

// FuzzIndex compares accepted indexes with encoding/json, which is laxer: it must accept them too and see the same map.
func FuzzIndex(f *testing.F) {
	for _, s := range []string{
		`{"metadata": {"total_size": 7}, "weight_map": {"a": "x.safetensors", "b\u00e9\ud83d\ude00": "y.safetensors"}}`,
		`{"weight_map":{}}`, `{"x": [1, -0.5e+3, true, null, {"y": "\""}], "weight_map": {"a": "a"}} `, `{"weight_map": {"a": 1}}`, `{`, "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := map[string]string{}
		size, err := scanIndex(text, func(tensor, shard []byte) error {
			got[string(tensor)] = string(shard)
			return nil
		})
		if err != nil {
			if !strings.Contains(err.Error(), "at byte ") && !strings.Contains(err.Error(), "weight_map") {
				t.Errorf("error %q says no place", err)
			}
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("accepted what encoding/json does not: %v", err)
		}
		all := map[string]string{}
		if err := json.Unmarshal(want["weight_map"], &all); err != nil || !maps.Equal(got, all) {
			t.Fatalf("got %v, encoding/json %v (%v)", got, all, err)
		}
		if size < -1 {
			t.Errorf("total size %d", size)
		}
	})
}

// FuzzConfig checks that what is accepted is JSON but for Python's literals, and that raw quantizations are JSON too.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		`{"hidden_size": 8, "text_config": {"num_experts": 4, "quantization_config": {"bits": 4}}, "x": NaN}`, `{"rope": -Infinity, "dtype": "b\u0066"}`,
		`{"quantization": {"a": [[[{}]]]}}`, `{"a": "\ud800"}`, `{`, "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, _, err := readConfig("config.json", text)
		if err != nil {
			return
		}
		if bytes.Contains(text, []byte("NaN")) || bytes.Contains(text, []byte("Infinity")) {
			return
		}
		if !json.Valid(text) {
			t.Fatal("accepted what is no JSON")
		}
		for _, q := range d.Quantization {
			if !json.Valid(q.Raw) || q.Raw[0] != '{' {
				t.Errorf("%s is %q", q.Where, q.Raw)
			}
		}
		for _, n := range []int64{d.Hidden, d.Layers, d.Experts, d.Intermediate, d.MoEIntermediate} {
			if n < 0 || n > 1<<40 {
				t.Errorf("number %d", n)
			}
		}
	})
}

// FuzzOpen opens a shard with any names and small shapes: each line is a name, a byte for the dtype and one for each axis.
func FuzzOpen(f *testing.F) {
	for _, c := range [][]ten{
		expand([]int{0, 1}, 2, pw("model.layers.{L}.mlp.experts.{E}.")...),
		expand([]int{0}, 1, bf("model.layers.{L}.mlp.experts.gate_up_proj", 2, 12, 8), bf("model.layers.{L}.mlp.experts.down_proj", 2, 8, 6), bf("model.layers.{L}.mlp.gate.weight", 2, 8)),
		expand([]int{0}, 1, bf("transformer.blocks.{L}.ffn.experts.mlp.w1", 12, 8), bf("transformer.blocks.{L}.ffn.experts.mlp.v1", 12, 8), bf("transformer.blocks.{L}.ffn.experts.mlp.w2", 12, 8), bf("transformer.blocks.{L}.ffn.router.layer.weight", 2, 8)),
		expand([]int{1}, 2, typed(safetensors.U8, "mtp.{L}.ffn.experts.{E}.w1.weight_packed", 4, 4)),
	} {
		var lines []string
		for _, x := range c {
			line := x.name + " " + string(byte(x.dtype))
			for _, d := range x.shape {
				line += string(byte(d))
			}
			lines = append(lines, line)
		}
		f.Add([]byte(strings.Join(lines, "\n")), []byte(`{"num_hidden_layers": 1}`))
	}
	f.Fuzz(func(t *testing.T, names, config []byte) {
		var tensors []ten
		for line := range strings.SplitSeq(string(names), "\n") {
			name, rest, ok := strings.Cut(line, " ")
			if !ok || len(rest) == 0 || len(rest) > 5 || rest[0] >= byte(safetensors.Opaque) {
				continue
			}
			x := ten{name, safetensors.DType(rest[0]), nil}
			for _, d := range []byte(rest[1:]) {
				x.shape = append(x.shape, int64(d))
			}
			if _, err := safetensors.Bytes(x.shape, x.dtype); err == nil {
				tensors = append(tensors, x)
			}
		}
		fake, ok := tryShard(tensors)
		if !ok {
			return
		}
		fake.file("config.json", string(config))
		rel, err := Open(context.Background(), fake.listing(), fake)
		if err != nil {
			if !errors.Is(err, ErrBadRelease) {
				t.Fatal(err)
			}
			return
		}
		for _, x := range []struct {
			*Experts
			reason string
		}{{rel.Experts, rel.NoExperts}, {rel.MTP, rel.NoMTP}} {
			if (x.Experts == nil) == (x.reason == "") {
				t.Errorf("experts %v, reason %q", x.Experts, x.reason)
			}
			checkParts(t, rel, x.Experts)
		}
		var out bytes.Buffer
		if err := WriteText(&out, Summarise(rel)); err != nil {
			t.Error(err)
		}
	})
}

// tryShard makes a release of one shard unless its header would be refused (a name twice, say).
func tryShard(tensors []ten) (*fake, bool) {
	var at int64
	var list []safetensors.Tensor
	for _, x := range tensors {
		n, err := safetensors.Bytes(x.shape, x.dtype)
		if err != nil {
			return nil, false
		}
		list = append(list, safetensors.Tensor{Name: x.name, DType: x.dtype, Shape: x.shape, Begin: at, End: at + n})
		at += n
	}
	head, err := safetensors.Encode(list, nil, 8)
	if err != nil {
		return nil, false
	}
	f := newFake()
	f.files["model.safetensors"], f.sizes["model.safetensors"] = head, int64(len(head))+at
	return f, true
}
