package safetensors

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// genTensors draws a valid tensor list with hostile names.
func genTensors(t *rapid.T) []Tensor {
	names := rapid.SliceOfDistinct(rapid.String().Filter(func(s string) bool {
		return s != "__metadata__" && utf8.ValidString(s) && len(s) <= MaxName
	}), rapid.ID[string]).Draw(t, "names")
	out := make([]Tensor, 0, len(names))
	var at int64
	for _, name := range names {
		x := Tensor{Name: name, DType: DType(rapid.IntRange(0, int(Opaque)).Draw(t, "dtype")), Begin: at}
		x.Shape = rapid.SliceOfN(rapid.Int64Range(0, 5), 0, 4).Draw(t, "shape")
		if x.DType < Opaque {
			x.DTypeName = x.DType.String()
		} else {
			x.DTypeName = rapid.SampledFrom([]string{"F2", "é\"", ""}).Draw(t, "name of the dtype")
		}
		n, err := Bytes(x.Shape, x.DType)
		if err != nil { // opaque, or bits that do not fill bytes
			n = rapid.Int64Range(0, 100).Draw(t, "bytes")
			x.DType, x.DTypeName = Opaque, "F2"
		}
		at += n
		x.End = at
		out = append(out, x)
	}
	return out
}

// TestEncodeParse checks that what Encode writes says what it was given: to Parse, and to encoding/json, which is lax but not ours.
func TestEncodeParse(t *testing.T) {
	var used Parser // has parsed all that came before
	rapid.Check(t, func(t *rapid.T) {
		tensors := genTensors(t)
		str := rapid.String().Filter(utf8.ValidString)
		metadata := rapid.MapOf(str, str).Draw(t, "metadata")
		align := rapid.SampledFrom([]int64{1, 8, 4096}).Draw(t, "align")

		b, err := Encode(tensors, metadata, align)
		if err != nil {
			t.Fatal(err)
		}
		n, err := EncodedLen(tensors, metadata, align)
		if err != nil || n != int64(len(b)) || n%align != 0 {
			t.Fatalf("EncodedLen %d, %v; Encode made %d bytes, align %d", n, err, len(b), align)
		}
		var size int64
		if len(tensors) > 0 {
			size = tensors[len(tensors)-1].End
		}
		h, err := Read(bytes.NewReader(b), n+size)
		if err != nil {
			t.Fatal(err)
		}
		if h.Digest() != sha256.Sum256(b) || !maps.Equal(h.Metadata(), metadata) || h.Len() != len(tensors) {
			t.Fatalf("digest %x, metadata %q, %d tensors", h.Digest(), h.Metadata(), h.Len())
		}
		checkAgainstJSON(t, b, tensors)
		again, err := used.Parse(b, n+size)
		if err != nil || !alike(h, again) {
			t.Fatalf("a Parser that was used before: %v", err)
		}
		for _, want := range tensors {
			if i := find(h, want.Name); i < 0 || !same(h.At(i), want) {
				t.Fatalf("wrote %+v, read tensor %d of %+v", want, i, h)
			}
		}
	})
}

// find is the number of the tensor of that name, -1 if there is none.
func find(h *Header, name string) int {
	for i := range h.Len() {
		if h.Name(i) == name {
			return i
		}
	}
	return -1
}

// alike says whether two headers say the same.
func alike(a, b *Header) bool {
	return fmt.Sprintf("%+v", *a) == fmt.Sprintf("%+v", *b)
}

func same(a, b Tensor) bool {
	if len(a.Shape) == 0 {
		a.Shape = b.Shape[:0]
	}
	return reflect.DeepEqual(a, b)
}

func checkAgainstJSON(t *rapid.T, b []byte, tensors []Tensor) {
	n := binary.LittleEndian.Uint64(b)
	if int(n) != len(b)-8 {
		t.Fatalf("length %d of %d", n, len(b)-8)
	}
	var got map[string]struct {
		DType   string  `json:"dtype"`
		Shape   []int64 `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:], &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "__metadata__")
	if len(got) != len(tensors) {
		t.Fatalf("%d members for %d tensors", len(got), len(tensors))
	}
	for _, x := range tensors {
		g := got[x.Name]
		if g.DType != x.DTypeName || len(g.Shape) != len(x.Shape) || g.Offsets[0] != x.Begin || g.Offsets[1] != x.End {
			t.Fatalf("wrote %+v, JSON says %+v", x, g)
		}
	}
}

// TestOrderDoesNotMatter checks that the order of tensors in the JSON changes nothing.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tensors := genTensors(t)
		var members [][]byte
		for i := range tensors {
			members = append(members, appendTensor(nil, &tensors[i])[1:])
		}
		var size int64
		if len(tensors) > 0 {
			size = tensors[len(tensors)-1].End
		}
		shuffled := rapid.Permutation(members).Draw(t, "order")
		parse := func(m [][]byte) *Header {
			h, err := Parse(file("{"+string(bytes.Join(m, []byte{','}))+"}", size))
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		a, b := parse(members), parse(shuffled)
		for i := range a.Len() {
			// Tensors without bytes may change places among each other.
			if x := a.At(i); x.Begin < x.End && !reflect.DeepEqual(x, b.At(i)) {
				t.Fatalf("tensor %d is %+v or %+v", i, x, b.At(i))
			}
			if j := find(b, a.Name(i)); j < 0 || !reflect.DeepEqual(b.At(j), a.At(i)) {
				t.Fatalf("tensor %+v is lost", a.At(i))
			}
		}
	})
}

func TestEncodeRefuses(t *testing.T) {
	u8 := func(name string, begin, end int64) Tensor {
		return Tensor{Name: name, DType: U8, Shape: []int64{end - begin}, Begin: begin, End: end}
	}
	for name, tensors := range map[string][]Tensor{
		"hole":          {u8("a", 0, 1), u8("b", 2, 3)},
		"duplicate":     {u8("a", 0, 1), u8("a", 1, 2)},
		"metadata name": {u8("__metadata__", 0, 1)},
		"not UTF-8":     {u8("\xff", 0, 1)},
		"size":          {{Name: "a", DType: F32, Shape: []int64{2}, End: 4}},
		"negative":      {{Name: "a", DType: U8, Shape: []int64{-1}, End: -1}},
		"not in order":  {u8("b", 1, 2), u8("a", 0, 1)},
		"name too long": {u8(string(make([]byte, MaxName+1)), 0, 1)},
	} {
		if b, err := Encode(tensors, nil, 8); err == nil {
			t.Errorf("%s: %q", name, b)
		}
	}
}

// FuzzParse checks that whatever is accepted means the same to encoding/json, and that writing it again changes nothing.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, data int64) {
		if data < 0 || data > 1<<50 {
			return
		}
		head, size := file(text, data)
		h, err := Parse(head, size)
		var used Parser
		used.Parse(file(`{"a":{"dtype":"X","shape":[3],"data_offsets":[0,5]},"b":{"shape":[7,9]`, 5))
		if again, err2 := used.Parse(head, size); fmt.Sprint(err) != fmt.Sprint(err2) || err == nil && !alike(h, again) {
			t.Fatalf("a Parser that was used before: %v; a new one: %v", err2, err)
		}
		if err != nil {
			return
		}
		var lax map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &lax); err != nil {
			t.Fatalf("accepted what is not JSON: %v", err)
		}
		delete(lax, "__metadata__")
		if len(lax) != h.Len() {
			t.Fatalf("%d tensors, encoding/json has %d", h.Len(), len(lax))
		}
		tensors := make([]Tensor, h.Len())
		for i := range tensors {
			tensors[i] = h.At(i)
			if _, ok := lax[tensors[i].Name]; !ok {
				t.Fatalf("encoding/json has no tensor %q", tensors[i].Name)
			}
		}
		again, err := Encode(tensors, h.Metadata(), 8)
		if err != nil {
			t.Fatalf("accepted, but cannot be written: %v", err)
		}
		h2, err := Parse(again, int64(len(again))+data)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tensors {
			if !reflect.DeepEqual(h2.At(i), tensors[i]) {
				t.Fatalf("tensor %d is %+v, then %+v", i, tensors[i], h2.At(i))
			}
		}
	})
}
