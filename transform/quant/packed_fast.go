//go:build !purego

package quant

func (k packed) kernel() kernel { return fastPacked{k, best} }

// fastPacked decodes rows of codes in groups. Permuted groups and padded words, which are rare, go to the reference.
type fastPacked struct {
	packed
	v *vectors
}

func (k fastPacked) decode(s *strip) error {
	index, err := k.groupsOf(s)
	if err != nil {
		return err
	}
	if index != nil || k.perWord > 0 {
		return refPacked{k.packed}.decode(s)
	}
	first, end := s.c0/k.group, (s.c1-1)/k.group+1
	row := newCodeRow(k.bits, k.group, k.bias, k.v, first, end)
	for r := range s.rows {
		k.scale.read(row.scales, s.at(1, r)[int64(first)*k.scale.size():])
		if k.bias {
			k.scale.read(row.seconds, s.at(2, r)[int64(first)*k.scale.size():])
		} else {
			for i := range row.seconds {
				row.seconds[i] = float32(k.zeroOf(s, r, first+i))
			}
		}
		row.decode(s.out1(r), s.at(0, r), 0, s.c0, s.c1)
	}
	return nil
}
