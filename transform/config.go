package transform

import (
	"encoding/json"
	"fmt"
	"strings"
)

// quantKeys are the keys of config.json that describe a quantization, wherever they nest: transformers' quantization_config (also under
// text_config and llm_config), compressed-tensors' old compression_config, MLX's quantization, DFloat11's, and DeepSeek-V4's
// expert_dtype beside the model's own keys.
var quantKeys = map[string]bool{
	"quantization_config": true,
	"compression_config":  true,
	"quantization":        true,
	"dfloat11_config":     true,
	"expert_dtype":        true,
}

// dtypeKeys are the keys that name the dtype of the weights.
var dtypeKeys = map[string]bool{"torch_dtype": true, "dtype": true}

// maxNesting bounds the depth of a config.json.
const maxNesting = 200

// editConfig is config.json (or params.json) of the BF16 checkpoint: members whose key is in quantKeys are removed at every depth, strings under a
// key of dtypeKeys become "bfloat16". Every other byte stays, Python's NaN, Infinity and -Infinity included. Text that is not JSON
// in this sense is an error that names the offset.
func editConfig(src []byte) ([]byte, error) {
	e := configEditor{src: src, out: make([]byte, 0, len(src))}
	e.space()
	if err := e.value(0, ""); err != nil {
		return nil, err
	}
	e.space()
	if e.pos != len(src) {
		return nil, e.errorf("text after the value")
	}
	return e.out, nil
}

// configEditor copies JSON text from src to out, token by token.
type configEditor struct {
	src []byte
	pos int
	out []byte
}

func (e *configEditor) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %s", e.pos, fmt.Sprintf(format, args...))
}

func (e *configEditor) peek() byte {
	if e.pos < len(e.src) {
		return e.src[e.pos]
	}
	return 0
}

// skip passes white space and returns it.
func (e *configEditor) skip() []byte {
	from := e.pos
	for e.pos < len(e.src) && strings.IndexByte(" \t\r\n", e.src[e.pos]) >= 0 {
		e.pos++
	}
	return e.src[from:e.pos]
}

// space copies white space.
func (e *configEditor) space() { e.out = append(e.out, e.skip()...) }

// take copies one byte, which must be c.
func (e *configEditor) take(c byte) error {
	if e.pos >= len(e.src) || e.src[e.pos] != c {
		return e.errorf("want %q", c)
	}
	e.pos++
	e.out = append(e.out, c)
	return nil
}

// value copies one value; key is the key it stands under, "" in arrays.
func (e *configEditor) value(depth int, key string) error {
	if depth > maxNesting {
		return e.errorf("nested deeper than %d", maxNesting)
	}
	switch e.peek() {
	case '{':
		return e.object(depth)
	case '[':
		return e.array(depth)
	case '"':
		mark := len(e.out)
		if _, err := e.str(); err != nil {
			return err
		}
		if dtypeKeys[key] {
			e.out = append(e.out[:mark], `"bfloat16"`...)
		}
		return nil
	}
	return e.scalar()
}

// object copies an object without the members that quantKeys name. A member goes with the white space before it and one comma; the
// white space before the closing brace stays.
func (e *configEditor) object(depth int) error {
	if err := e.take('{'); err != nil {
		return err
	}
	lead := e.skip()
	if e.peek() == '}' {
		e.out = append(e.out, lead...)
		return e.take('}')
	}
	var tail []byte // after the last member that was kept
	for kept := false; ; lead = e.skip() {
		mark := len(e.out)
		if kept {
			e.out = append(append(e.out, tail...), ',')
		}
		e.out = append(e.out, lead...)
		drop, err := e.member(depth)
		if err != nil {
			return err
		}
		after := e.skip()
		if drop {
			e.out = e.out[:mark]
		} else {
			kept, tail = true, after
		}
		if e.peek() == '}' {
			e.out = append(e.out, after...)
			return e.take('}')
		}
		if e.peek() != ',' {
			return e.errorf("want ',' or '}'")
		}
		e.pos++
	}
}

// member copies key, colon and value, and says whether the member is one to leave out.
func (e *configEditor) member(depth int) (drop bool, err error) {
	key, err := e.str()
	if err != nil {
		return false, err
	}
	e.space()
	if err := e.take(':'); err != nil {
		return false, err
	}
	e.space()
	return quantKeys[key], e.value(depth+1, key)
}

func (e *configEditor) array(depth int) error {
	if err := e.take('['); err != nil {
		return err
	}
	e.space()
	if e.peek() == ']' {
		return e.take(']')
	}
	for {
		if err := e.value(depth+1, ""); err != nil {
			return err
		}
		e.space()
		if e.peek() == ']' {
			return e.take(']')
		}
		if err := e.take(','); err != nil {
			return err
		}
		e.space()
	}
}

// str copies a string and returns what it says.
func (e *configEditor) str() (string, error) {
	from := e.pos
	if e.peek() != '"' {
		return "", e.errorf("want a string")
	}
	for e.pos++; ; e.pos++ {
		if e.pos >= len(e.src) {
			return "", e.errorf("string without end")
		}
		if e.src[e.pos] == '\\' {
			e.pos++
		} else if e.src[e.pos] == '"' {
			break
		}
	}
	e.pos++
	var s string
	if err := json.Unmarshal(e.src[from:e.pos], &s); err != nil {
		e.pos = from
		return "", e.errorf("%v", err)
	}
	e.out = append(e.out, e.src[from:e.pos]...)
	return s, nil
}

// scalar copies a number, true, false, null, NaN, Infinity or -Infinity.
func (e *configEditor) scalar() error {
	from := e.pos
	for e.pos < len(e.src) && (isAlnum(e.src[e.pos]) || strings.IndexByte("+-.", e.src[e.pos]) >= 0) {
		e.pos++
	}
	word := e.src[from:e.pos]
	switch string(word) {
	case "NaN", "Infinity", "-Infinity":
	default:
		if !json.Valid(word) {
			e.pos = from
			return e.errorf("want a value")
		}
	}
	e.out = append(e.out, word...)
	return nil
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
