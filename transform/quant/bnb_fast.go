//go:build !purego

package quant

func (k bnb4) kernel() kernel { return fastBnb4{k, vector()} }

// fastBnb4 decodes through a table of the 16 codes under the block's absmax.
type fastBnb4 struct {
	bnb4
	vector bool
}

func (k fastBnb4) decode(s *strip) error {
	for r := range s.rows {
		var table planes
		absmax := k.absmax(s, r)
		for i, v := range k.table {
			table.set(i, bf16(v*absmax))
		}
		dst, src := s.out1(r), s.at(0, r)
		if n := len(dst) / 64; k.vector && n > 0 {
			lookup16High(&dst[0], &src[0], (*[32]byte)(&table), n)
			dst, src = dst[64*n:], src[16*n:]
		}
		if len(dst) > 0 {
			lookup4(dst, src, table.words(), true)
		}
	}
	return nil
}
