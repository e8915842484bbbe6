//go:build purego

package quant

func (k scaled8) kernel() kernel { return refScaled8{k} }
func (k fp4) kernel() kernel     { return refFP4{k} }
func (k packed) kernel() kernel  { return refPacked{k} }
