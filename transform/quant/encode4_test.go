package quant

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"github.com/x448/float16"
	"pgregory.net/rapid"

	"weightfs/fs/plan"
)

// rawBF16 is a codec whose output is its input.
type rawBF16 int64

func (c rawBF16) String() string                 { return "raw" }
func (c rawBF16) Len() int64                     { return int64(c) }
func (c rawBF16) InputLens() []int64             { return []int64{int64(c)} }
func (c rawBF16) Tile() int64                    { return 1 }
func (c rawBF16) Needs(off, n int64) []plan.Need { return []plan.Need{{Start: off, End: off + n}} }
func (c rawBF16) Decode(dst []byte, _ int64, in [][]byte) error {
	copy(dst, in[0])
	return nil
}

func encode4(t testing.TB, values []byte, rows, cols, block int64, rule Rule) Encoded {
	t.Helper()
	e, err := Encode4(rawBF16(len(values)), "BF16", rows, cols, block, rule)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEncode4Vectors(t *testing.T) {
	values := (&stream{name: "nbits-in"}).values(6 * 80)
	if got := hash(values); got != "17222d5f00a0a3fc7778ea6a8bb670336ebde5b60cfe79e43410e5828dac8862" {
		t.Fatalf("the input is another one: %s", got)
	}
	in := [][]byte{values}
	const scales, zeros = "9c8a482e5becafaf990204f63015b3f38bf9a2fdf7b2a827521805b652d36ccd", "f7f3256e3c65c258690cfd87bc649b32297cdfc7346230a642ce073948542fbd"
	for _, x := range []struct {
		rule Rule
		data string
	}{
		{RuleORT, "22cc1bc13e0ac0f76e8eba96fe390ecdef21d039773595107f4b920ed5c3c1d2"},
		{RuleWebAI, "8fb0361083da7175cbbcd116edc19874d9730e8ff4cd7c36f0bbe7bdc1cfa014"},
	} {
		e := encode4(t, values, 6, 80, 32, x.rule)
		for _, part := range []struct {
			codec plan.Codec
			hash  string
		}{{e.Data, x.data}, {e.Scales, scales}, {e.Zeros, zeros}} {
			if got := hash(whole(t, part.codec, in)); got != part.hash {
				t.Errorf("%s: %s, want %s", part.codec, got, part.hash)
			}
			checkWindows(t, part.codec, in)
		}
	}
}

func TestEncode4Examples(t *testing.T) {
	x := halves(t, "0000 3D84 3E17 3D31 3D09 BD58 BD32 BDC9 BDC2 3A5C 3D87 3E18 3D2F 3D03 BD61 BD34 BDC9 BDBE 3ADC 3D89 3E18 3D2D 3CF8 BD6B BD36 BDC8 BDBA 3B25 3D8C 3E18 3D2B 3CEB")
	var rising, constant []byte
	for i := range 32 {
		rising = append(rising, le16(bf16(float32(0.5+float64(i)*0.025)))...)
		constant = append(constant, le16(bf16(0.3))...)
	}
	for _, c := range []struct {
		name                 string
		values               []byte
		rule                 Rule
		scale, zero, values4 string
	}{
		{"sine, ort", x, RuleORT, "3524", "06", "a69f380360fa893300a69f380360fa89"},
		{"sine, webai", x, RuleWebAI, "3524", "06", "a69f380360fa893300a69f380360fa89"},
		{"zeros, ort", make([]byte, 64), RuleORT, "0000", "00", "00000000000000000000000000000000"},
		{"zeros, webai", make([]byte, 64), RuleWebAI, "003c", "00", "00000000000000000000000000000000"},
		{"rising, ort", rising, RuleORT, "6f2d", "00", "667677889899a9aabbcbccdcddeeeeff"},
		{"rising, webai", rising, RuleWebAI, "9a2a", "00", "aabbccddeeffffffffffffffffffffff"},
		{"constant, ort", constant, RuleORT, "2225", "00", "ffffffffffffffffffffffffffffffff"},
		{"constant, webai", constant, RuleWebAI, "003c", "00", "00000000000000000000000000000000"},
	} {
		e := encode4(t, c.values, 1, 32, 32, c.rule)
		for _, p := range []struct {
			codec plan.Codec
			want  string
		}{{e.Scales, c.scale}, {e.Zeros, c.zero}, {e.Data, c.values4}} {
			if got := hex.EncodeToString(whole(t, p.codec, [][]byte{c.values})); got != p.want {
				t.Errorf("%s: %s gives %s, want %s", c.name, p.codec, got, p.want)
			}
		}
	}
}

// TestEncode4Symmetric: the value of larger magnitude keeps its sign and becomes code 0.
func TestEncode4Symmetric(t *testing.T) {
	var values []byte
	for i := range 16 {
		values = append(values, le16(bf16(float32(i)-8))...)
	}
	e := encode4(t, values, 1, 16, 16, RuleORTSymmetric)
	if e.Zeros != nil {
		t.Error("symmetric blocks have zero points")
	}
	if got := hex.EncodeToString(whole(t, e.Scales, [][]byte{values})); got != "003c" {
		t.Errorf("scale %s", got)
	}
	if got := hex.EncodeToString(whole(t, e.Data, [][]byte{values})); got != "1032547698badcfe" {
		t.Errorf("codes %s", got)
	}
}

// TestEncode4OverCodec encodes the output of a codec as it would the same bytes, in any window.
func TestEncode4OverCodec(t *testing.T) {
	for _, b := range bulks() {
		if b.name != "mxfp4-pack" && b.name != "gptq-v2-4b" && b.name != "gptoss-hf[E,in,out]" {
			continue
		}
		files, _ := b.make(&stream{name: b.name})
		m, in := recognise(t, files, b.config, nil)
		cols := m.Shape[len(m.Shape)-1]
		values := whole(t, m.Codec, in)
		rows := int64(len(values)) / 2 / cols
		plain := encode4(t, values, rows, cols, 16, RuleORT)
		e, err := Encode4(m.Codec, "BF16", rows, cols, 16, RuleORT)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range []plan.Codec{e.Data, e.Scales, e.Zeros} {
			want := whole(t, []plan.Codec{plain.Data, plain.Scales, plain.Zeros}[i], [][]byte{values})
			if got := whole(t, c, in); !bytes.Equal(got, want) {
				t.Errorf("%s differs from the same over plain values", c)
			}
			checkWindows(t, c, in)
		}
	}
}

func TestEncode4Refuses(t *testing.T) {
	for _, bad := range []uint16{0x7F80, 0xFF80, 0x7FC0, 0x7F7F} {
		values := make([]byte, 64)
		values[10], values[11] = byte(bad), byte(bad>>8)
		for _, rule := range []Rule{RuleORT, RuleORTSymmetric, RuleWebAI} {
			e := encode4(t, values, 1, 32, 32, rule)
			if err := e.Data.Decode(make([]byte, 16), 0, [][]byte{values}); !errors.Is(err, plan.ErrBadInput) {
				t.Errorf("%s with %04X: error %v", rule, bad, err)
			}
		}
	}
	if _, err := Encode4(rawBF16(64), "BF16", 1, 32, 7, RuleORT); err == nil {
		t.Error("blocks of 7 are accepted")
	}
	if _, err := Encode4(rawBF16(64), "BF16", 1, 31, 32, RuleORT); err == nil {
		t.Error("a codec of another size is accepted")
	}
}

// TestEncode4TakesValuesAsTheyAre: F16 and F32 values are encoded unrounded, in any window, and by other dtypes refused.
func TestEncode4TakesValuesAsTheyAre(t *testing.T) {
	var singles []byte
	for i := range 6 * 80 {
		singles = append(singles, le32(math.Float32bits(float32(math.Sin(float64(i)*0.7))*0.01))...)
	}
	rounded := whole(t, Cast("F32", []int64{6, 80}), [][]byte{singles})
	for _, rule := range []Rule{RuleORT, RuleORTSymmetric, RuleWebAI} {
		e, err := Encode4(rawBF16(len(singles)), "F32", 6, 80, 32, rule)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(whole(t, e.Data, [][]byte{singles}), whole(t, encode4(t, rounded, 6, 80, 32, rule).Data, [][]byte{rounded})) {
			t.Errorf("%s: the codes are those of rounded values", rule)
		}
		for _, c := range []plan.Codec{e.Data, e.Scales, e.Zeros} {
			if c != nil {
				checkWindows(t, c, [][]byte{singles})
			}
		}
	}
	if _, err := Encode4(rawBF16(64), "F64", 1, 8, 16, RuleORT); err == nil {
		t.Error("F64 is accepted")
	}
}

// TestHalfValue compares the value of every F16 code with the library's.
func TestHalfValue(t *testing.T) {
	for b := range 1 << 16 {
		got, want := halfValue(uint16(b)), float16.Frombits(uint16(b)).Float32()
		if math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) {
			t.Fatalf("%04X is %g, not %g", b, got, want)
		}
	}
}

// TestHalfRounding checks that F16 is the nearest one, ties to even, over all binary32 values near its codes and halfway between them.
func TestHalfRounding(t *testing.T) {
	check := func(f float32) {
		got := float16.Fromfloat32(f)
		near := func(b uint16) float64 { return math.Abs(float64(float16.Frombits(b).Float32()) - float64(f)) }
		b := got.Bits()
		if b&0x7FFF >= 0x7BFF {
			return
		}
		for _, other := range []uint16{b - 1, b + 1} {
			if (b == 0 || b == 0x8000) && other == b-1 {
				continue
			}
			if near(other) < near(b) || near(other) == near(b) && b&1 == 1 {
				t.Fatalf("%g rounds to %04X, not %04X", f, b, other)
			}
		}
	}
	for b := range uint16(0x7BFF) {
		lo, hi := float16.Frombits(b).Float32(), float16.Frombits(b+1).Float32()
		mid := (lo + hi) / 2
		for _, f := range []float32{lo, mid, math.Nextafter32(mid, 0), math.Nextafter32(mid, 1e9)} {
			check(f)
			check(-f)
		}
	}
	rapid.Check(t, func(r *rapid.T) { check(math.Float32frombits(rapid.Uint32Range(0, 0x477FE000).Draw(r, "bits"))) })
}

// TestRounding compares the roundings with their definitions.
func TestRounding(t *testing.T) {
	for _, f := range []float64{0, 0.49999999999999994, 0.5, 0.5000000000000001, 1.5, 2.5, 14.5, 14.499999, 15.5, 99.5, 1e30, math.SmallestNonzeroFloat64} {
		for _, f := range []float64{f, -f} {
			want := math.Floor(f)
			if f-want >= 0.5 {
				want++
			}
			if got := roundUp(f); float64(got) != min(max(want, -100), 100) {
				t.Errorf("%g rounds up to %d", f, got)
			}
			if got, want := roundCode(float32(f)), min(max(math.Round(float64(float32(f))), 0), 15); float64(got) != want {
				t.Errorf("%g rounds to code %d, not %g", f, got, want)
			}
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		f := rapid.Float64Range(-40, 40).Draw(r, "f")
		want := math.Floor(f)
		if f-want >= 0.5 {
			want++
		}
		if float64(roundUp(f)) != want || float64(roundCode(float32(f))) != min(max(math.Round(float64(float32(f))), 0), 15) {
			r.Fatalf("%g rounds to %d and %d", f, roundUp(f), roundCode(float32(f)))
		}
	})
}
