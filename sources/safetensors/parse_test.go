package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// file prefixes the JSON with its length; the file has data bytes after it.
func file(json string, data int64) ([]byte, int64) {
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(json)))
	return append(head, json...), int64(8+len(json)) + data
}

func one(info string) string { return `{"t":` + info + `}` }

// tensorOf is a header of one U8 tensor of 4 bytes with these further members in its object.
func tensorOf(more string) string {
	return one(`{"dtype":"U8","shape":[4],"data_offsets":[0,4]` + more + `}`)
}

func overlapping(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"weight_%d":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// object has n keys with strings.
func object(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":"v"`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// TestParse has the reference's cases (safetensors/src/tensor.rs and attacks/), the odd cases that its compiled validator was
// tried with, and ours.
func TestParse(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		name string
		json string
		data int64
		want error
	}{
		// Reference tests.
		{"json_attack", overlapping(10), 160, ErrOffset},
		{"attack 3: 100,000 overlapping", overlapping(100_000), 16, ErrOffset},
		{"metadata_incomplete_buffer, bytes extra", tensorOf(``), 5, ErrFileLength},
		{"metadata_incomplete_buffer, bytes missing", tensorOf(``), 3, ErrFileLength},
		{"invalid_header_non_utf8", "\xff", 0, ErrHeaderUTF8},
		{"invalid_header_not_json", "{", 0, ErrHeaderJSON},
		{"whitespace trailing", tensorOf(``) + " \t\r\n", 4, nil},
		{"whitespace leading", "\t\n " + tensorOf(``), 4, nil},
		{"whitespace everywhere", " { \"t\" : { \"dtype\" : \"U8\" , \"shape\" : [ 2 , 2 ] , \"data_offsets\" : [ 0 , 4 ] } } ", 4, nil},
		{"zero_sized_tensor", one(`{"dtype":"I32","shape":[2,0],"data_offsets":[0,0]}`), 0, nil},
		{"empty_shapes_allowed", one(`{"dtype":"I32","shape":[],"data_offsets":[0,4]}`), 4, nil},
		{"invalid_info", one(`{"dtype":"I32","shape":[2,2],"data_offsets":[0,4]}`), 4, ErrTensorSize},
		{"validation_overflow of elements", one(`{"dtype":"I32","shape":[2,9223372036854775807],"data_offsets":[0,16]}`), 16, ErrOverflow},
		{"validation_overflow of bytes", one(`{"dtype":"I32","shape":[2,4611686018427387904],"data_offsets":[0,16]}`), 16, ErrOverflow},
		{"fp4 misaligned", one(`{"dtype":"F4","shape":[1,3],"data_offsets":[0,1]}`), 1, ErrMisaligned},
		{"fp4 invalid", one(`{"dtype":"F4","shape":[1,4],"data_offsets":[0,1]}`), 1, ErrTensorSize},
		{"fp4", one(`{"dtype":"F4","shape":[1,2],"data_offsets":[0,1]}`), 1, nil},

		// Keys that occur twice: the reference takes the last one of these three.
		{"duplicate tensor", `{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"t":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8, ErrDuplicate},
		{"duplicate tensor, escaped", `{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"\u0074":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}}`, 4, ErrDuplicate},
		{"duplicate in metadata", `{"__metadata__":{"a":"b","a":"b"}}`, 0, ErrDuplicate},
		{"duplicate metadata", `{"__metadata__":{},"__metadata__":{}}`, 0, ErrDuplicate},
		{"duplicate dtype", tensorOf(`,"dtype":"U8"`), 4, ErrDuplicate},
		{"duplicate shape", tensorOf(`,"shape":[4]`), 4, ErrDuplicate},
		{"duplicate data_offsets", tensorOf(`,"data_offsets":[0,4]`), 4, ErrDuplicate},
		{"duplicate unknown field", tensorOf(`,"x":1,"x":1`), 4, ErrDuplicate},
		{"duplicate inside an ignored value", tensorOf(`,"x":[{"a":1,"a":1}]`), 4, ErrDuplicate},

		// Metadata.
		{"metadata null", `{"__metadata__":null}`, 0, nil},
		{"metadata empty", `{"__metadata__":{}}`, 0, nil},
		{"metadata last", `{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"__metadata__":{"format":"pt"}}`, 4, nil},
		{"metadata number", `{"__metadata__":{"a":1}}`, 0, ErrHeaderJSON},
		{"metadata value null", `{"__metadata__":{"a":null}}`, 0, ErrHeaderJSON},
		{"metadata value object", `{"__metadata__":{"a":{}}}`, 0, ErrHeaderJSON},
		{"metadata array", `{"__metadata__":[]}`, 0, ErrHeaderJSON},
		{"metadata true", `{"__metadata__":true}`, 0, ErrHeaderJSON},

		// Fields.
		{"unknown fields", tensorOf(`,"x":[1,-2.5e+7,{"y":null,"z":[true,false,"\ud83d\ude00"]}],"DTYPE":"F32"`), 4, nil},
		{"no dtype", one(`{"shape":[4],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"no shape", one(`{"dtype":"U8","data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"no data_offsets", one(`{"dtype":"U8","shape":[4]}`), 4, ErrHeaderJSON},
		{"folded key", one(`{"DTYPE":"U8","shape":[4],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"empty tensor", one(`{}`), 0, ErrHeaderJSON},
		{"array form", one(`["U8",[4],[0,4]]`), 4, ErrHeaderJSON},
		{"tensor null", one(`null`), 0, ErrHeaderJSON},
		{"dtype object", one(`{"dtype":{"U8":null},"shape":[4],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"dtype integer", one(`{"dtype":4,"shape":[4],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"unknown dtype", one(`{"dtype":"F2_E1M0","shape":[4,9],"data_offsets":[0,4]}`), 4, nil},
		{"lower-case dtype is unknown", one(`{"dtype":"f32","shape":[4,9],"data_offsets":[0,4]}`), 4, nil},
		{"dtype too long", one(`{"dtype":"` + strings.Repeat("X", 65) + `","shape":[],"data_offsets":[0,4]}`), 4, ErrLimit},
		{"ignored value of depth 64", tensorOf(`,"x":` + deep(64)), 4, nil},
		{"ignored value of depth 65", tensorOf(`,"x":` + deep(65)), 4, ErrLimit},
		{"ignored value of depth 1,000,000", tensorOf(`,"x":` + strings.Repeat(`[`, 1_000_000)), 4, ErrLimit},
		{"ignored object of 10,000 keys", tensorOf(`,"x":` + object(10_000)), 4, nil},
		{"ignored object of 10,001 keys", tensorOf(`,"x":` + object(10_001)), 4, ErrLimit},
		{"metadata of 10,000 keys", `{"__metadata__":` + object(10_000) + `}`, 0, nil},
		{"metadata of 10,001 keys", `{"__metadata__":` + object(10_001) + `}`, 0, ErrLimit},
		{"100 unknown fields", tensorOf("," + strings.Trim(object(100), "{}")), 4, nil},
		{"101 unknown fields", tensorOf("," + strings.Trim(object(101), "{}")), 4, ErrLimit},
		{"64 dimensions", one(`{"dtype":"U8","shape":[4` + strings.Repeat(",1", 63) + `],"data_offsets":[0,4]}`), 4, nil},
		{"65 dimensions", one(`{"dtype":"U8","shape":[4` + strings.Repeat(",1", 64) + `],"data_offsets":[0,4]}`), 4, ErrLimit},
		{"ignored garbage", tensorOf(`,"x":nope`), 4, ErrHeaderJSON},
		{"ignored number 01", tensorOf(`,"x":01`), 4, ErrHeaderJSON},
		{"ignored number 1.", tensorOf(`,"x":1.`), 4, ErrHeaderJSON},
		{"ignored number 1e", tensorOf(`,"x":1e`), 4, ErrHeaderJSON},
		{"ignored number -", tensorOf(`,"x":-`), 4, ErrHeaderJSON},
		{"ignored number +1", tensorOf(`,"x":+1`), 4, ErrHeaderJSON},
		{"ignored string with control character", tensorOf(",\"x\":\"\n\""), 4, ErrHeaderJSON},
		{"ignored string not UTF-8", tensorOf(",\"x\":\"\xff\""), 4, ErrHeaderUTF8},

		// Numbers.
		{"shape float", one(`{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"shape exponent", one(`{"dtype":"U8","shape":[4e0],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"shape -0", one(`{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}`), 0, ErrHeaderJSON},
		{"shape negative", one(`{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"shape leading zero", one(`{"dtype":"U8","shape":[04],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"shape string", one(`{"dtype":"U8","shape":["4"],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"shape null", one(`{"dtype":"U8","shape":null,"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"shape of null", one(`{"dtype":"U8","shape":[null],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"shape trailing comma", one(`{"dtype":"U8","shape":[4,],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"shape unclosed", one(`{"dtype":"U8","shape":[4`), 4, ErrHeaderJSON},
		{"shape over 64 bits", one(`{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,4]}`), 4, ErrHeaderJSON},
		{"shape over 63 bits", one(`{"dtype":"U8","shape":[0,18446744073709551615],"data_offsets":[0,0]}`), 0, ErrOverflow},
		{"leading 0 passes", one(`{"dtype":"U64","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[0,0]}`), 0, nil},
		{"trailing 0 does not", one(`{"dtype":"U8","shape":[9223372036854775807,9223372036854775807,0],"data_offsets":[0,0]}`), 0, ErrOverflow},
		{"offsets of one", one(`{"dtype":"U8","shape":[4],"data_offsets":[0]}`), 4, ErrHeaderJSON},
		{"offsets of three", one(`{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}`), 4, ErrHeaderJSON},
		{"offsets over 64 bits", one(`{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551620]}`), 4, ErrHeaderJSON},
		{"offsets at the end of 64 bits", one(`{"dtype":"F2","shape":[4],"data_offsets":[0,18446744073709551615]}`), 4, ErrFileLength},
		{"offsets null", one(`{"dtype":"U8","shape":[4],"data_offsets":null}`), 4, ErrHeaderJSON},

		// Layout.
		{"reversed", one(`{"dtype":"U8","shape":[4],"data_offsets":[4,0]}`), 4, ErrOffset},
		{"does not start at 0", one(`{"dtype":"U8","shape":[4],"data_offsets":[4,8]}`), 8, ErrOffset},
		{"hole", `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}}`, 9, ErrOffset},
		{"overlap", `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}`, 7, ErrOffset},
		{"alias", `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4, ErrOffset},
		{"not in order", `{"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 8, nil},
		{"zero-size inside another", `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}}`, 4, ErrOffset},
		{"zero-size beyond the end", `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],"data_offsets":[5,5]}}`, 4, ErrOffset},
		{"zero-size, several at one boundary", `{"c":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},"d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 4, nil},
		{"F32 at offset 1", `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}`, 5, nil},
		{"no tensors", `{}`, 0, nil},
		{"no tensors, data", `{}`, 1, ErrFileLength},
		{"nothing", ``, 0, ErrHeaderJSON},

		// Names and JSON.
		{"names", `{"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0000/..":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"é\ud83d\ude00":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0, nil},
		{"name of 4096 bytes", `{"` + strings.Repeat("n", 4096) + `":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0, nil},
		{"name of 4097 bytes", `{"` + strings.Repeat("n", 4097) + `":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0, ErrLimit},
		{"lone high surrogate", `{"__metadata__":{"\ud800":""}}`, 0, ErrHeaderJSON},
		{"lone low surrogate", `{"__metadata__":{"\udc00":""}}`, 0, ErrHeaderJSON},
		{"high surrogate and letter", `{"__metadata__":{"\ud800\u0041":""}}`, 0, ErrHeaderJSON},
		{"unknown escape", `{"__metadata__":{"\x41":""}}`, 0, ErrHeaderJSON},
		{"short escape", `{"__metadata__":{"\u00`, 0, ErrHeaderJSON},
		{"bad hexadecimal digit", `{"__metadata__":{"\u00g0":""}}`, 0, ErrHeaderJSON},
		{"overlong UTF-8", "{\"__metadata__\":{\"\xc0\x80\":\"\"}}", 0, ErrHeaderUTF8},
		{"surrogate in UTF-8", "{\"__metadata__\":{\"\xed\xa0\x80\":\"\"}}", 0, ErrHeaderUTF8},
		{"control character", "{\"a\tb\":1}", 0, ErrHeaderJSON},
		{"BOM", "\ufeff{}", 0, ErrHeaderJSON},
		{"NUL padding", "{}\x00\x00", 0, ErrHeaderJSON},
		{"something after the end", `{}{}`, 0, ErrHeaderJSON},
		{"trailing comma", `{"__metadata__":{},}`, 0, ErrHeaderJSON},
		{"comma first", `{,"__metadata__":{}}`, 0, ErrHeaderJSON},
		{"comment", `{/**/}`, 0, ErrHeaderJSON},
		{"single quotes", `{'a':1}`, 0, ErrHeaderJSON},
		{"array", `[]`, 0, ErrHeaderJSON},
		{"null", `null`, 0, ErrHeaderJSON},
		{"no colon", `{"t"{}}`, 0, ErrHeaderJSON},
	} {
		t.Run(c.name, func(t *testing.T) {
			head, size := file(c.json, c.data)
			h, err := Parse(head, size)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("Parse: %v, want %v", err, c.want)
			}
			read, readErr := Read(bytes.NewReader(head), size)
			if fmt.Sprint(readErr) != fmt.Sprint(err) || (h == nil) != (read == nil) {
				t.Errorf("Read says %v, Parse %v", readErr, err)
			}
		})
	}
}

func TestHeaderLen(t *testing.T) {
	le := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for _, c := range []struct {
		name  string
		first []byte
		size  int64
		n     int64
		want  error
	}{
		{"header_too_small", []byte("1234567"), 7, 0, ErrHeaderTooSmall},
		{"empty file", nil, 0, 0, ErrHeaderTooSmall},
		{"header_too_large", le(MaxHeader + 1), 1 << 40, 0, ErrHeaderTooLarge},
		{"attack 1: a length of 2^64-1", le(1<<64 - 1), 1 << 40, 0, ErrHeaderTooLarge},
		{"at the limit", le(MaxHeader), 1 << 40, MaxHeader, nil},
		{"invalid_header_length", le(60), 8 + 59, 0, ErrHeaderLength},
		{"exact", le(60), 8 + 60, 60, nil},
	} {
		n, err := HeaderLen(c.first, c.size)
		if n != c.n || !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, n, err, c.n, c.want)
		}
		if c.want != nil {
			if _, err := Read(bytes.NewReader(c.first), c.size); !errors.Is(err, c.want) {
				t.Errorf("%s: Read says %v", c.name, err)
			}
		}
	}
}

// TestManyTensors is the reference's attack 2, a header of nothing but tensors as short as can be: memory stays a small multiple of
// the header.
func TestManyTensors(t *testing.T) {
	var b bytes.Buffer
	const n = 200_000
	for i := range n {
		fmt.Fprintf(&b, `,"%x":{"dtype":"","shape":[%d],"data_offsets":[0,0]}`, i, i)
	}
	b.Bytes()[0] = '{'
	b.WriteByte('}')
	head, size := file(b.String(), 0)
	before := heap()
	h, err := Parse(head, size)
	if err != nil || h.Len() != n {
		t.Fatal(h.Len(), err)
	}
	if kept := heap() - before; kept > int64(4*len(head)) {
		t.Errorf("%d bytes kept of a header of %d", kept, len(head))
	}
	runtime.KeepAlive(h)
}

func TestErrorsNameTensorAndNumbers(t *testing.T) {
	for want, json := range map[string]string{
		`tensor "t": shape and offsets disagree: I32[2 2] is 16 bytes, data_offsets [0, 4) are 4`: one(`{"dtype":"I32","shape":[2,2],"data_offsets":[0,4]}`),
		`tensor "t" lies at [1, 5), but the one before it ends at 0`:                              one(`{"dtype":"I32","shape":[1],"data_offsets":[1,5]}`),
		`header of 63 bytes and tensors of 16, file of 67: 12 bytes are missing`:                  one(`{"dtype":"U8","shape":[16],"data_offsets":[0,16]}`),
		`tensor "t": data_offsets: header is not what safetensors allows: ']' instead of ','`:     one(`{"dtype":"U8","shape":[4],"data_offsets":[0]}`),
	} {
		_, err := Parse(file(json, 4))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nhas no %q", err, want)
		}
	}
}

func TestHeaderContent(t *testing.T) {
	json := `{"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[5,17],"x":1},"__metadata__":{"format":"pt","\n":"\"\\\/\u00e9"},` +
		`"\u0061":{"dtype":"Q5","shape":[7],"data_offsets":[0,5]},"c":{"dtype":"BF16","shape":[2,3],"data_offsets":[17,29]}}`
	head, size := file(json, 29)
	h, err := Parse(head, size)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{Name:a DType:opaque Shape:[7] Begin:0 End:5 DTypeName:Q5}`,
		`{Name:b DType:BF16 Shape:[2 3] Begin:5 End:17 DTypeName:BF16}`,
		`{Name:c DType:BF16 Shape:[2 3] Begin:17 End:29 DTypeName:BF16}`,
	}
	for i, w := range want {
		got := h.At(i)
		if s := fmt.Sprintf("%+v", got); s != w {
			t.Errorf("At(%d) = %s, want %s", i, s, w)
		}
	}
	if h.Len() != 3 || h.FileSize() != size || h.DataStart() != int64(len(head)) {
		t.Errorf("Len %d, FileSize %d, DataStart %d", h.Len(), h.FileSize(), h.DataStart())
	}
	if m := h.Metadata(); len(m) != 2 || m["format"] != "pt" || m["\n"] != `"\/é` {
		t.Errorf("Metadata %q", m)
	}
	notes := []string{`1 unknown fields ignored, the first "x" of tensor "b"`, `unknown dtype "Q5": tensors of it are opaque`}
	if !slices.Equal(h.Notes(), notes) {
		t.Errorf("Notes %q", h.Notes())
	}
	clear(head)
	if h.At(0).Name != "a" {
		t.Error("the header keeps the caller's bytes")
	}
}

func TestDTypes(t *testing.T) {
	// Name and bits in the reference's order.
	want := "BOOL 8,F4 4,F6_E2M3 6,F6_E3M2 6,U8 8,I8 8,F8_E5M2 8,F8_E4M3 8,F8_E8M0 8,F8_E4M3FNUZ 8,F8_E5M2FNUZ 8," +
		"I16 16,U16 16,F16 16,BF16 16,I32 32,U32 32,F32 32,C64 64,F64 64,I64 64,U64 64,opaque 0"
	var got []string
	for d := range Opaque + 1 {
		got = append(got, fmt.Sprint(d, d.Bits()))
		if p, ok := ParseDType(d.String()); p != d || ok != (d < Opaque) {
			t.Errorf("ParseDType(%q) = %v, %v", d, p, ok)
		}
	}
	if s := strings.ReplaceAll(strings.Join(got, ","), "  ", " "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		shape []int64
		d     DType
		n     int64
		ok    bool
	}{
		{nil, F32, 4, true}, {[]int64{3, 5}, BF16, 30, true}, {[]int64{4}, F6_E2M3, 3, true}, {[]int64{3}, F4, 0, false},
		{[]int64{-1}, U8, 0, false}, {[]int64{1 << 62, 4}, U8, 0, false}, {[]int64{1}, Opaque, 0, false}, {[]int64{0, 1 << 62}, I64, 0, true},
	} {
		if n, err := Bytes(c.shape, c.d); n != c.n || (err == nil) != c.ok {
			t.Errorf("Bytes(%v, %v) = %d, %v", c.shape, c.d, n, err)
		}
	}
}
