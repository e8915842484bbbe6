//go:build !purego

package quant

func (k gptq) kernel() colKernel { return refGPTQ{k} }
