package quant

import (
	"fmt"

	"weightfs/fs/plan"
)

// Named is c with the name of the tensor that it makes in its errors. Everything else is c's, its text too. name is called for an error only.
func Named(c plan.Codec, name func() string) plan.Codec { return named{c, name} }

type named struct {
	plan.Codec
	name func() string
}

func (n named) Decode(dst []byte, off int64, in [][]byte) error {
	if err := n.Codec.Decode(dst, off, in); err != nil {
		return fmt.Errorf("tensor %s: %w", n.name(), err)
	}
	return nil
}
