//go:build amd64 && !purego

package crc32c

import (
	"testing"

	"weightfs/internal/generated"
)

func TestGenerated(t *testing.T) { generated.Check(t, "fold_amd64") }
