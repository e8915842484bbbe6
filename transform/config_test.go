package transform

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

func TestEditConfig(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", `{}`, `{}`},
		{"white space", "{ \n}\n", "{ \n}\n"},
		{"middle", `{"a": 1, "quantization_config": {"x": [1, {"y": "}"}]}, "b": 2}`, `{"a": 1, "b": 2}`},
		{"first", "{\n  \"quantization_config\": {},\n  \"b\": 2\n}", "{\n  \"b\": 2\n}"},
		{"last", "{\n  \"a\": 1,\n  \"quantization_config\": null\n}\n", "{\n  \"a\": 1\n}\n"},
		{"only", "{\n  \"quantization_config\": {}\n}", "{\n}"},
		{"two at the end", `{"a":1 , "quantization":{} , "compression_config":{} }`, `{"a":1 }`},
		{"nested", `{"text_config": {"h": 4, "quantization_config": {}}, "l": [{"quantization": 1}]}`, `{"text_config": {"h": 4}, "l": [{}]}`},
		{"escaped key", `{"\u0071uantization_config": 1, "a": "quantization_config"}`, `{ "a": "quantization_config"}`},
		{"dtype", `{"torch_dtype": "float16", "t": {"dtype" :"float8_e4m3fn"}}`, `{"torch_dtype": "bfloat16", "t": {"dtype" :"bfloat16"}}`},
		{"dtype that is no string", `{"torch_dtype": null, "dtype": {"a": "float16"}}`, `{"torch_dtype": null, "dtype": {"a": "float16"}}`},
		{"python numbers", `{"a": NaN, "b": [Infinity, -Infinity, -1.5E+3], "quantization": NaN}`, `{"a": NaN, "b": [Infinity, -Infinity, -1.5E+3]}`},
		{"bytes that stay", "{\"k\" :\t\"\\u00e9\\/é\" ,\r\n\"n\":1e400}", "{\"k\" :\t\"\\u00e9\\/é\" ,\r\n\"n\":1e400}"},
		{"duplicates", `{"quantization":1,"a":1,"quantization":2,"a":3}`, `{"a":1,"a":3}`},
		{"deepseek v4", `{"expert_dtype": "fp4", "x": true}`, `{ "x": true}`},
	} {
		got, err := editConfig([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if string(got) != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestEditConfigRefuses(t *testing.T) {
	for _, in := range []string{
		``, `{`, `{"a"}`, `{"a":1,}`, `{"a":1 "b":2}`, `[1,]`, `{"a":01}`, `{"a":nan}`, `{"a":"`, `{"a":"\x"}`, `{"a":1}x`, `{'a':1}`, "\ufeff{}",
		`{"a":1,"quantization":}`, strings.Repeat("[", maxNesting+2) + strings.Repeat("]", maxNesting+2),
	} {
		if got, err := editConfig([]byte(in)); err == nil {
			t.Errorf("%.40q: no error, got %.40q", in, got)
		}
	}
}

// FuzzEditConfig: whatever encoding/json accepts is edited to what removing the keys from its value gives, and an edit of an edit
// changes nothing.
func FuzzEditConfig(f *testing.F) {
	for _, s := range []string{
		`{"a": 1, "quantization_config": {"x": [1, {"y": "}"}]}, "b": {"torch_dtype": "float16"}}`, `[{"quantization":{}},{ }]`, `"x"`,
		`{"dtype":"a","dtype":1,"\u0064type":"x"}`, "{\n\t\"quantization\":[],\n\t\"expert_dtype\":\"fp4\"\n}", `{"a":NaN}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := editConfig(in)
		var v any
		valid := json.Unmarshal(in, &v) == nil
		if err != nil {
			if valid && !strings.Contains(err.Error(), "nested deeper") {
				t.Fatalf("refused valid JSON: %v", err)
			}
			return
		}
		again, err := editConfig(out)
		if err != nil || string(again) != string(out) {
			t.Fatalf("edit of the edit: %q, %v", again, err)
		}
		if !valid {
			return
		}
		var got any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("result is no JSON: %v\n%s", err, out)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(withoutKeys(v))
		if string(a) != string(b) && !regexp.MustCompile(`(?i)type`).Match(in) { // duplicates of a dtype key merge differently
			t.Fatalf("got %s, want %s", a, b)
		}
	})
}

// withoutKeys is what editConfig does, on the value rather than the text.
func withoutKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if quantKeys[k] {
				delete(v, k)
			} else if _, ok := x.(string); ok && dtypeKeys[k] {
				v[k] = "bfloat16"
			} else {
				v[k] = withoutKeys(x)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutKeys(v[i])
		}
	}
	return v
}
