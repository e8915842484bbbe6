//go:build !amd64 && !purego

package quant

// levels are the sets of assembly kernels: none for this processor.
func levels() []*vectors { return nil }
