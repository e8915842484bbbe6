//go:build !purego

package quant

import "encoding/binary"

func (k gptq) kernel() colKernel { return fastGPTQ{k, vector()} }

// fastGPTQ unpacks the codes of whole columns, which are output rows, and decodes them group by group.
type fastGPTQ struct {
	gptq
	vector bool
}

func (k fastGPTQ) decode(s *colStrip) error {
	groups, err := k.groupsOf(s)
	if err != nil {
		return err
	}
	if k.awq {
		k.eights(s)
		return nil
	}
	codes := make([]byte, s.k1-s.k0)
	for n := s.n0; n < s.n1; n++ {
		k.unpack(codes, &s.in[0], n, s.k0)
		if k.index {
			k.scattered(s, n, codes, groups)
		} else {
			k.column(s, n, codes)
		}
	}
	return nil
}

// unpack writes the codes of output row n from element e on.
func (k *fastGPTQ) unpack(codes []byte, v *colView, n, e int64) {
	per := int64(32 / k.bits)
	if 32%k.bits == 0 {
		for e%per == 0 && int64(len(codes)) >= per {
			unpackWord(codes[:per], v.word(e/per, n), k.bits)
			codes, e = codes[per:], e+per
		}
	}
	for i := range codes {
		codes[i] = byte(k.code(v, n, e+int64(i)))
	}
}

// unpackWord writes the codes of a word.
func unpackWord(codes []byte, w uint32, bits int) {
	switch bits {
	case 4:
		binary.LittleEndian.PutUint64(codes, spreadNibbles(w))
	case 8:
		binary.LittleEndian.PutUint32(codes, w)
	default:
		for i := range codes {
			codes[i] = byte(w >> (i * bits) & (1<<bits - 1))
		}
	}
}

// column decodes output row n, whose groups are in order.
func (k *fastGPTQ) column(s *colStrip, n int64, codes []byte) {
	dst := s.out(n)
	for e := s.k0; e < s.k1; {
		g := e / k.group
		end := min(s.k1, (g+1)*k.group)
		a := affineCode{bits: k.bits, zero: k.zero(&s.in[1], g, n), scale: k.scaleOf(&s.in[2], g, n), vector: k.vector}
		a.decode(dst[2*(e-s.k0):2*(end-s.k0)], codes[e-s.k0:end-s.k0])
		e = end
	}
}

// scattered decodes output row n, whose elements have groups in any order.
func (k *fastGPTQ) scattered(s *colStrip, n int64, codes []byte, groups []int32) {
	type parameters struct {
		zero  int32
		scale float32
	}
	of := make([]parameters, k.groups)
	for g := range of {
		of[g] = parameters{int32(k.zero(&s.in[1], int64(g), n)), k.scaleOf(&s.in[2], int64(g), n)}
	}
	dst := s.out(n)
	for i, code := range codes {
		p := &of[groups[s.k0+int64(i)]]
		putBF16(dst, i, float32(int32(code)-p.zero)*p.scale)
	}
}

// eights decodes AWQ's words, each of which holds a code of eight output rows.
func (k *fastGPTQ) eights(s *colStrip) {
	size := s.k1 - s.k0
	spread, codes := make([]uint64, size), make([]byte, size)
	for word := s.n0 / 8; word*8 < s.n1; word++ {
		for e := range size {
			spread[e] = spreadNibbles(s.in[0].word(s.k0+e, word))
		}
		for n := max(s.n0, 8*word); n < min(s.n1, 8*word+8); n++ {
			shift := 8 * k.order[n%8]
			for e := range codes {
				codes[e] = byte(spread[e] >> shift)
			}
			k.column(s, n, codes)
		}
	}
}
