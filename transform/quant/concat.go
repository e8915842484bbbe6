package quant

import (
	"fmt"
	"strings"

	"weightfs/fs/plan"
)

// concat is codecs over the same inputs one after the other, for formats whose packed rows hold several far-apart output rows.
type concat []plan.Codec

func (c concat) String() string {
	parts := make([]string, len(c))
	for i, p := range c {
		parts[i] = p.String()
	}
	return fmt.Sprintf("concat(%s)", strings.Join(parts, "+"))
}

func (c concat) Len() int64 {
	var n int64
	for _, p := range c {
		n += p.Len()
	}
	return n
}

func (c concat) InputLens() []int64 { return c[0].InputLens() }
func (c concat) Tile() int64        { return c[0].Tile() }

// each calls f for every codec that the range reaches, with the range in its own output.
func (c concat) each(off, n int64, f func(p plan.Codec, off, n int64) error) error {
	for _, p := range c {
		if off < p.Len() && n > 0 {
			k := min(n, p.Len()-off)
			if err := f(p, off, k); err != nil {
				return err
			}
			off, n = off+k, n-k
		}
		off -= p.Len()
	}
	return nil
}

func (c concat) Needs(off, n int64) []plan.Need {
	var list []plan.Need
	_ = c.each(off, n, func(p plan.Codec, off, n int64) error {
		list = append(list, p.Needs(off, n)...)
		return nil
	})
	return list
}

func (c concat) Decode(dst []byte, off int64, in [][]byte) error {
	return c.each(off, int64(len(dst)), func(p plan.Codec, off, n int64) error {
		k := len(p.Needs(off, n))
		err := p.Decode(dst[:n], off, in[:k])
		dst, in = dst[n:], in[k:]
		return err
	})
}
