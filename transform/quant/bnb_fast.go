//go:build !purego

package quant

func (k bnb4) kernel() kernel { return fastBnb4{k, best} }

// fastBnb4 decodes through a table of the 16 codes under the block's absmax: one that the vectors make, or one made here.
type fastBnb4 struct {
	bnb4
	v *vectors
}

func (k fastBnb4) decode(s *strip) error {
	block := s.c1 - s.c0
	if k.v != nil && k.v.multiply4High != nil && s.c0 == 0 && block%32 == 0 && s.dstStride == 2*block && s.stride[0] == block/2 {
		k.blocks(s, block)
		return nil
	}
	table := new(planes)
	for r := range s.rows {
		absmax := k.absmax(s, r)
		for i, v := range k.table {
			table.set(i, bf16(v*absmax))
		}
		dst, src := s.out1(r), s.at(0, r)
		if n := len(dst) / 64; k.v != nil && k.v.lookup16High != nil && n > 0 {
			k.v.lookup16High(&dst[0], &src[0], (*[32]byte)(table), n)
			dst, src = dst[64*n:], src[16*n:]
		}
		if len(dst) > 0 {
			lookup4(dst, src, table.words(), true)
		}
	}
	return nil
}

// blocks decodes whole blocks, which lie one after the other.
func (k fastBnb4) blocks(s *strip, block int) {
	absmaxes := make([]float32, s.rows)
	for r := range absmaxes {
		absmaxes[r] = k.absmax(s, r)
	}
	_, _ = s.dst[2*block*s.rows-1], s.in[0][block/2*s.rows-1]
	k.v.multiply4High(&s.dst[0], &s.in[0][0], k.table, &absmaxes[0], nil, s.rows, block/32)
}
